// RAdam (Liu et al. 2019): Adam that omits its denominator until that is reliable.
#pragma once

#include <array>

#include "levin/core/fields.h"
#include "levin/optim/batched_optimizer.h"

namespace levin {

struct RAdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &RAdamOptions::lr, "step size").min(0.0),
        field("betas", &RAdamOptions::betas, "decay of the mean of gradients and of squared gradients")
            .check([](const auto& betas) { return detail::are_betas(betas); }, "two numbers in [0, 1)"),
        field("eps", &RAdamOptions::eps, "added to the denominator").min(0.0),
        field("weight_decay", &RAdamOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("decoupled_weight_decay", &RAdamOptions::decoupled_weight_decay,
              "decay the parameter itself, as AdamW does"),
        field("maximize", &RAdamOptions::maximize, "climb instead of descend"));
  }
};

/// State: "step", "exp_avg", "exp_avg_sq".
class RAdam final : public BatchedOptimizer {
 public:
  using Options = RAdamOptions;

  /// Groups are added later.
  explicit RAdam(RAdamOptions options = {});
  explicit RAdam(std::vector<at::Tensor> params, RAdamOptions options = {}) : RAdam(options) {
    add_param_group({.params = std::move(params)});
  }
  explicit RAdam(std::vector<ParamGroup> groups, RAdamOptions options = {}) : RAdam(options) {
    for (auto& group : groups) add_param_group(std::move(group));
  }

  [[nodiscard]] std::string name() const override { return "RAdam"; }
  [[nodiscard]] ConfigNode written_options() const override { return write_options(options_); }

 private:
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  bool packs_small_tensors() const override { return true; }
  void update(Batch& batch, const Group& group) override;

  RAdamOptions options_;
};

}  // namespace levin
