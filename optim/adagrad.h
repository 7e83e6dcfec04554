// Adagrad: gradients over the root of the sum of their squares, on ATen's fused kernel.
#pragma once

#include "levin/core/fields.h"
#include "levin/optim/batched_optimizer.h"

namespace levin {

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &AdagradOptions::lr, "step size").min(0.0),
        field("lr_decay", &AdagradOptions::lr_decay, "lr is divided by 1 + lr_decay * (step - 1)").min(0.0),
        field("weight_decay", &AdagradOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("initial_accumulator_value", &AdagradOptions::initial_accumulator_value,
              "where the sum of squares starts")
            .min(0.0),
        field("eps", &AdagradOptions::eps, "added to the denominator").min(0.0),
        field("maximize", &AdagradOptions::maximize, "climb instead of descend"));
  }
};

/// State: "step", "sum".
class Adagrad final : public BatchedOptimizer {
 public:
  using Options = AdagradOptions;

  /// Groups are added later.
  explicit Adagrad(AdagradOptions options = {});
  explicit Adagrad(std::vector<at::Tensor> params, AdagradOptions options = {}) : Adagrad(options) {
    add_param_group({.params = std::move(params)});
  }
  explicit Adagrad(std::vector<ParamGroup> groups, AdagradOptions options = {}) : Adagrad(options) {
    for (auto& group : groups) add_param_group(std::move(group));
  }

  [[nodiscard]] std::string name() const override { return "Adagrad"; }
  [[nodiscard]] ConfigNode written_options() const override { return write_options(options_); }
  [[nodiscard]] bool is_recordable() const override { return true; }

 private:
  std::vector<std::string> state_names() const override { return {"sum"}; }
  double initial_state() const override { return options_.initial_accumulator_value; }
  bool has_step_tensor() const override { return true; }
  bool rounds_learning_rate() const override { return false; }  // CUDA's kernel divides it in float64
  void update(Batch& batch, const Group& group) override;

  AdagradOptions options_;
};

}  // namespace levin
