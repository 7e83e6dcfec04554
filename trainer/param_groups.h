// Divides a model's parameters by name into groups with their own settings.
//
//   return AdamW(param_groups(*this, {{.params = {"encoder.*"}, .lr = 1e-5}}, /*no_decay=*/true), {.lr = 1e-3});
//
// In a run file: optimizer: {class_path: AdamW, no_decay: true, param_groups: [{params: ["encoder.*"], lr: 1e-5}]}
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"

namespace torch::nn {
class Module;
}

namespace levin {

struct ParamGroup;

/// The settings of the parameters whose names match a pattern. Unset ones are taken from the optimizer.
struct ParamGroupOptions {
  std::vector<std::string> params = {};
  std::optional<double> lr = {};
  std::optional<double> weight_decay = {};
  std::optional<double> momentum = {};

  template <class = void>
  static auto fields() {
    using O = ParamGroupOptions;
    return levin::fields(
        field("params", &O::params, "patterns of parameter names, as in a shell: \"encoder.*\", \"*.bias\"")
            .not_empty(),
        field("lr", &O::lr, "step size").check([](const auto& v) { return !v || *v >= 0; }, ">= 0"),
        field("weight_decay", &O::weight_decay, "weight decay")
            .check([](const auto& v) { return !v || *v >= 0; }, ">= 0"),
        field("momentum", &O::momentum, "momentum, or the first of betas")
            .check([](const auto& v) { return !v || *v >= 0; }, ">= 0"));
  }
};

/// Returns the parameters of `module` that require gradients, in groups. Each belongs to the first of `wanted` with a
/// pattern that matches its name (as in named_parameters(); one of its names if its layer has several), the others to a
/// group with the optimizer's settings. `no_decay`: biases and the parameters of normalization layers (layers with
/// "Norm" in their class's name) get weight decay 0, unless a matching group sets it. Groups come in the order of
/// `wanted`, the rest last; within each, parameters with weight decay come first; empty groups are left out. Throws
/// ConfigError, below `path`, for a pattern that matches no parameter or only parameters of earlier groups, and if
/// nothing can be trained.
[[nodiscard]] std::vector<ParamGroup> param_groups(const torch::nn::Module& module,
                                                   const std::vector<ParamGroupOptions>& wanted = {},
                                                   bool no_decay = false, const std::string& path = "param_groups");

}  // namespace levin
