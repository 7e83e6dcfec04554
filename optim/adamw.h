// Adam with decoupled weight decay (Loshchilov, Hutter 2017), on ATen's fused kernel.
#pragma once

#include <array>

#include "levin/core/fields.h"
#include "levin/optim/adam.h"

namespace levin {

struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &AdamWOptions::lr, "step size").min(0.0),
        field("betas", &AdamWOptions::betas, "decay of the mean of gradients and of squared gradients")
            .check([](const auto& betas) { return detail::are_betas(betas); }, "two numbers in [0, 1)"),
        field("eps", &AdamWOptions::eps, "added to the denominator").min(0.0),
        field("weight_decay", &AdamWOptions::weight_decay, "share of the parameter taken off, times lr").min(0.0),
        field("amsgrad", &AdamWOptions::amsgrad, "divide by the largest mean of squares seen so far"),
        field("maximize", &AdamWOptions::maximize, "climb instead of descend"));
  }
};

class AdamW final : public AdamBase {
 public:
  using Options = AdamWOptions;

  /// Groups are added later.
  explicit AdamW(AdamWOptions options = {});
  explicit AdamW(std::vector<at::Tensor> params, AdamWOptions options = {}) : AdamW(options) {
    add_param_group({.params = std::move(params)});
  }
  explicit AdamW(std::vector<ParamGroup> groups, AdamWOptions options = {}) : AdamW(options) {
    for (auto& group : groups) add_param_group(std::move(group));
  }

  [[nodiscard]] std::string name() const override { return "AdamW"; }
};

}  // namespace levin
