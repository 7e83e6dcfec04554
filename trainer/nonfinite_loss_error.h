#pragma once

#include "levin/core/options/error.h"

namespace levin {

/// The run stopped before an update with a loss that is nan or inf.
class NonFiniteLossError : public Error {
 public:
  using Error::Error;
};

}  // namespace levin
