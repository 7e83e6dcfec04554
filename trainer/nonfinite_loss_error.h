#pragma once

#include "levin/core/options/error.h"

namespace levin {

/// The error of a run that stopped before an update with a loss or a gradient that is nan or inf. Its text names epoch,
/// batch and step.
class NonFiniteLossError : public Error {
 public:
  using Error::Error;
};

}  // namespace levin
