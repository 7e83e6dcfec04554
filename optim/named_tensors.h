// Parameters with their names, for optimizers whose options name parameters.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <string>
#include <utility>
#include <vector>

namespace levin {

/// What a module's named_parameters().pairs() returns.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// The additional interface of optimizers whose options name parameters.
class NamesParameters {
 public:
  virtual ~NamesParameters() = default;
  /// Receives the names of the model's parameters, before any are added. Throws ConfigError for an option that names
  /// none of them.
  virtual void take_names(const NamedTensors& parameters) = 0;

 protected:
  NamesParameters() = default;
  NamesParameters(const NamesParameters&) = default;
  NamesParameters& operator=(const NamesParameters&) = default;
};

}  // namespace levin
