// Adam (Kingma, Ba 2014), on ATen's fused kernel.
#pragma once

#include <array>

#include "levin/core/fields.h"
#include "levin/optim/batched_optimizer.h"

namespace levin {

struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
  bool decoupled_weight_decay = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &AdamOptions::lr, "step size").min(0.0),
        field("betas", &AdamOptions::betas, "decay of the mean of gradients and of squared gradients")
            .check([](const auto& betas) { return detail::are_betas(betas); }, "two numbers in [0, 1)"),
        field("eps", &AdamOptions::eps, "added to the denominator").min(0.0),
        field("weight_decay", &AdamOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("amsgrad", &AdamOptions::amsgrad, "divide by the largest mean of squares seen so far"),
        field("maximize", &AdamOptions::maximize, "climb instead of descend"),
        field("decoupled_weight_decay", &AdamOptions::decoupled_weight_decay,
              "decay the parameter itself, as AdamW does"));
  }
};

/// The common part of Adam and AdamW. State: "step", "exp_avg", "exp_avg_sq", and "max_exp_avg_sq" with amsgrad.
class AdamBase : public BatchedOptimizer {
 public:
  [[nodiscard]] bool is_recordable() const override { return true; }
  [[nodiscard]] ConfigNode written_options() const override { return write_options(options_); }

 protected:
  explicit AdamBase(AdamOptions checked_options);

 private:
  std::vector<std::string> state_names() const override {
    if (options_.amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
    return {"exp_avg", "exp_avg_sq"};
  }
  bool has_step_tensor() const override { return true; }
  void update(Batch& batch, const Group& group) override;

  AdamOptions options_;
};

class Adam final : public AdamBase {
 public:
  using Options = AdamOptions;

  /// Groups are added later.
  explicit Adam(AdamOptions options = {}) : AdamBase(checked(options, "AdamOptions")) {}
  explicit Adam(std::vector<at::Tensor> params, AdamOptions options = {}) : Adam(options) {
    add_param_group({.params = std::move(params)});
  }
  explicit Adam(std::vector<ParamGroup> groups, AdamOptions options = {}) : Adam(options) {
    for (auto& group : groups) add_param_group(std::move(group));
  }

  [[nodiscard]] std::string name() const override { return "Adam"; }
};

}  // namespace levin
