// Adamax (Kingma, Ba 2014): Adam with the largest gradient instead of the mean square.
#pragma once

#include <array>

#include "levin/core/fields.h"
#include "levin/optim/batched_optimizer.h"

namespace levin {

struct AdamaxOptions {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &AdamaxOptions::lr, "step size").min(0.0),
        field("betas", &AdamaxOptions::betas, "decay of the mean and of the largest gradient")
            .check([](const auto& betas) { return detail::are_betas(betas); }, "two numbers in [0, 1)"),
        field("eps", &AdamaxOptions::eps, "added to the size of each gradient").min(0.0),
        field("weight_decay", &AdamaxOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("maximize", &AdamaxOptions::maximize, "climb instead of descend"));
  }
};

/// State: "step", "exp_avg", "exp_inf".
class Adamax final : public BatchedOptimizer {
 public:
  using Options = AdamaxOptions;

  /// Groups are added later.
  explicit Adamax(AdamaxOptions options = {});
  explicit Adamax(std::vector<at::Tensor> params, AdamaxOptions options = {}) : Adamax(options) {
    add_param_group({.params = std::move(params)});
  }
  explicit Adamax(std::vector<ParamGroup> groups, AdamaxOptions options = {}) : Adamax(options) {
    for (auto& group : groups) add_param_group(std::move(group));
  }

  [[nodiscard]] std::string name() const override { return "Adamax"; }
  [[nodiscard]] ConfigNode written_options() const override { return write_options(options_); }

 private:
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_inf"}; }
  bool packs_small_tensors() const override { return true; }
  void update(Batch& batch, const Group& group) override;

  AdamaxOptions options_;
};

}  // namespace levin
