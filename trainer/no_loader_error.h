#pragma once

#include "levin/core/options/error.h"

namespace levin {

/// An evaluation or a prediction has no loader: neither the data module, the module nor the call gives one.
class NoLoaderError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

}  // namespace levin
