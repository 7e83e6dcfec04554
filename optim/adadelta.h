// Adadelta (Zeiler 2012): steps scaled by the root mean square of past steps over that of gradients.
#pragma once

#include "levin/core/fields.h"
#include "levin/optim/batched_optimizer.h"

namespace levin {

struct AdadeltaOptions {
  double lr = 1.0;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &AdadeltaOptions::lr, "step size").min(0.0),
        field("rho", &AdadeltaOptions::rho, "decay of both means of squares").min(0.0).max(1.0),
        field("eps", &AdadeltaOptions::eps, "added to the denominator").min(0.0),
        field("weight_decay", &AdadeltaOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("maximize", &AdadeltaOptions::maximize, "climb instead of descend"));
  }
};

/// State: "step", "square_avg", "acc_delta".
class Adadelta final : public BatchedOptimizer {
 public:
  using Options = AdadeltaOptions;

  /// Groups are added later.
  explicit Adadelta(AdadeltaOptions options = {});
  explicit Adadelta(std::vector<at::Tensor> params, AdadeltaOptions options = {}) : Adadelta(options) {
    add_param_group({.params = std::move(params)});
  }
  explicit Adadelta(std::vector<ParamGroup> groups, AdadeltaOptions options = {}) : Adadelta(options) {
    for (auto& group : groups) add_param_group(std::move(group));
  }

  [[nodiscard]] std::string name() const override { return "Adadelta"; }
  [[nodiscard]] ConfigNode written_options() const override { return write_options(options_); }

 private:
  std::vector<std::string> state_names() const override { return {"square_avg", "acc_delta"}; }
  bool packs_small_tensors() const override { return true; }
  void update(Batch& batch, const Group& group) override;

  AdadeltaOptions options_;
};

}  // namespace levin
