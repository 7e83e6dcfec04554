// L-BFGS: a quasi-Newton method for small full-batch problems, over LibTorch's implementation.
//
//   LBFGS optimizer(model.parameters(), {.line_search_fn = LineSearch::strong_wolfe});
//   optimizer.step([&] { optimizer.zero_grad(); auto loss = …; loss.backward(); return loss; });
#pragma once

#include <memory>

#include "levin/core/options/fields.h"
#include "levin/optim/optimizer.h"

namespace levin {

class TorchOptimizer;

/// How the length of an iteration is found.
enum class LineSearch { strong_wolfe };
template <>
struct EnumNames<LineSearch> {
  static constexpr EnumName<LineSearch> names[] = {{"strong_wolfe", LineSearch::strong_wolfe}};
};

/// Options of LBFGS; names and defaults are torch.optim.LBFGS's.
struct LBFGSOptions {
  double lr = 1;
  int64_t max_iter = 20;
  std::optional<int64_t> max_eval = {};
  double tolerance_grad = 1e-7;
  double tolerance_change = 1e-9;
  int64_t history_size = 100;
  std::optional<EnumOption<LineSearch>> line_search_fn = {};

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &LBFGSOptions::lr, "step size").min(0.0),
        field("max_iter", &LBFGSOptions::max_iter, "iterations in one step").min(1),
        field("max_eval", &LBFGSOptions::max_eval, "evaluations of the closure in one step; null: max_iter * 5 / 4"),
        field("tolerance_grad", &LBFGSOptions::tolerance_grad, "stop if no gradient is larger").min(0.0),
        field("tolerance_change", &LBFGSOptions::tolerance_change, "stop if loss or parameters change less").min(0.0),
        field("history_size", &LBFGSOptions::history_size, "past steps to keep, each as large as the model").min(1),
        field("line_search_fn", &LBFGSOptions::line_search_fn, "how the length of an iteration is chosen; null: lr"));
  }
};

/// L-BFGS, as in torch.optim.LBFGS. Takes one group, whose tensors have one device and type; add_param_group() throws
/// Error for a second group. State: "0.d", "0.old_dirs.3", …
class LBFGS final : public Optimizer {
 public:
  using Options = LBFGSOptions;

  /// The group is added later.
  explicit LBFGS(LBFGSOptions options = {});
  explicit LBFGS(std::vector<at::Tensor> params, LBFGSOptions options = {}) : LBFGS(options) {
    add_param_group({.params = std::move(params)});
  }
  explicit LBFGS(std::vector<ParamGroup> groups, LBFGSOptions options = {}) : LBFGS(options) {
    for (auto& group : groups) add_param_group(std::move(group));
  }

  [[nodiscard]] std::string name() const override { return "LBFGS"; }
  [[nodiscard]] ConfigNode written_options() const override;
  [[nodiscard]] bool needs_closure() const override { return true; }
  [[nodiscard]] StateLayout layout(const std::string& name) const override;
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;

 private:
  at::Tensor do_step(const Closure* closure) override;
  void group_added() override;

  LBFGSOptions options_;
  std::shared_ptr<TorchOptimizer> inner_;  // shared: its destructor is known only in lbfgs.cpp
};

}  // namespace levin
