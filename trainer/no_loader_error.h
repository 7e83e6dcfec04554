#pragma once

#include "levin/core/options/error.h"

namespace levin {

/// The error of an evaluation or a prediction without a loader: neither the data module, the module nor the call gives
/// one.
class NoLoaderError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

}  // namespace levin
