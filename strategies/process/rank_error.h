#pragma once

#include "levin/core/options/error.h"

namespace levin {

/// Another rank did not respond.
class RankError : public Error {
 public:
  using Error::Error;
};

}  // namespace levin
