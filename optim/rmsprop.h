// RMSprop: gradients over the root of their mean square.
#pragma once

#include "levin/core/fields.h"
#include "levin/optim/batched_optimizer.h"

namespace levin {

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &RMSpropOptions::lr, "step size").min(0.0),
        field("alpha", &RMSpropOptions::alpha, "decay of the mean of squared gradients").min(0.0),
        field("eps", &RMSpropOptions::eps, "added to the denominator").min(0.0),
        field("weight_decay", &RMSpropOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("momentum", &RMSpropOptions::momentum, "share of the last update that is kept").min(0.0),
        field("centered", &RMSpropOptions::centered,
              "divide by the standard deviation instead of the root mean square"),
        field("maximize", &RMSpropOptions::maximize, "climb instead of descend"));
  }
};

/// State: "step", "square_avg", "momentum_buffer" where momentum is not 0, "grad_avg" if centered.
class RMSprop final : public BatchedOptimizer {
 public:
  using Options = RMSpropOptions;

  /// Groups are added later.
  explicit RMSprop(RMSpropOptions options = {});
  explicit RMSprop(std::vector<at::Tensor> params, RMSpropOptions options = {}) : RMSprop(options) {
    add_param_group({.params = std::move(params)});
  }
  explicit RMSprop(std::vector<ParamGroup> groups, RMSpropOptions options = {}) : RMSprop(options) {
    for (auto& group : groups) add_param_group(std::move(group));
  }

  [[nodiscard]] std::string name() const override { return "RMSprop"; }
  [[nodiscard]] ConfigNode written_options() const override { return write_options(options_); }

 private:
  std::vector<std::string> state_names() const override { return {"square_avg", "momentum_buffer", "grad_avg"}; }
  bool uses_state(size_t index, const Group& group, size_t) const override;
  bool packs_small_tensors() const override { return true; }
  void update(Batch& batch, const Group& group) override;

  RMSpropOptions options_;
};

}  // namespace levin
