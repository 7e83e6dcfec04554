#pragma once

#include "levin/core/options/error.h"

namespace levin {

/// An error of communication: another rank has ended, or does not answer within the timeout.
class RankError : public Error {
 public:
  using Error::Error;
};

}  // namespace levin
