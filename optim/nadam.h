// NAdam (Dozat 2016): Adam with Nesterov momentum.
#pragma once

#include <array>

#include "levin/core/fields.h"
#include "levin/optim/batched_optimizer.h"

namespace levin {

struct NAdamOptions {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &NAdamOptions::lr, "step size").min(0.0),
        field("betas", &NAdamOptions::betas, "decay of the mean of gradients and of squared gradients")
            .check([](const auto& betas) { return detail::are_betas(betas); }, "two numbers in [0, 1)"),
        field("eps", &NAdamOptions::eps, "added to the denominator").min(0.0),
        field("weight_decay", &NAdamOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("momentum_decay", &NAdamOptions::momentum_decay, "how fast the momentum warms up").min(0.0),
        field("decoupled_weight_decay", &NAdamOptions::decoupled_weight_decay,
              "decay the parameter itself, as AdamW does"),
        field("maximize", &NAdamOptions::maximize, "climb instead of descend"));
  }
};

/// State: "step", "mu_product", "exp_avg", "exp_avg_sq".
class NAdam final : public BatchedOptimizer {
 public:
  using Options = NAdamOptions;

  /// Groups are added later.
  explicit NAdam(NAdamOptions options = {});
  explicit NAdam(std::vector<at::Tensor> params, NAdamOptions options = {}) : NAdam(options) {
    add_param_group({.params = std::move(params)});
  }
  explicit NAdam(std::vector<ParamGroup> groups, NAdamOptions options = {}) : NAdam(options) {
    for (auto& group : groups) add_param_group(std::move(group));
  }

  [[nodiscard]] std::string name() const override { return "NAdam"; }
  [[nodiscard]] ConfigNode written_options() const override { return write_options(options_); }

 private:
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  std::string product_name() const override { return "mu_product"; }
  bool packs_small_tensors() const override { return true; }
  void update(Batch& batch, const Group& group) override;

  NAdamOptions options_;
};

}  // namespace levin
