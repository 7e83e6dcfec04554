// Lookahead (Zhang et al. 2019, https://arxiv.org/abs/1907.08610) around any optimizer: after every k steps the weights
// go back, a part of the way, to where they were before.
//
//   Lookahead optimizer(RAdam(model.parameters(), {.lr = 1e-3}), {.k = 5, .alpha = 0.5});
//
// In a run file: optimizer: {class_path: Lookahead, init_args: {k: 5, optimizer: {class_path: RAdam, init_args: {…}}}}
#pragma once

#include <concepts>
#include <memory>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/optim/wrapping_optimizer.h"

namespace levin {

/// Options of Lookahead.
struct LookaheadOptions {
  ClassSpec optimizer = {};
  int64_t k = 5;
  double alpha = 0.5;

  template <class = void>
  static auto fields() {
    using O = LookaheadOptions;
    return levin::fields(field("optimizer", &O::optimizer, "the optimizer that takes the steps").not_empty(),
                         field("k", &O::k, "steps between two returns").min(1),
                         field("alpha", &O::alpha, "fraction of the way that is kept").min(0.0).max(1.0));
  }
};

/// Lookahead around an inner optimizer. State: the inner optimizer's; "slow", the weights at the last return; the
/// number of steps since then. Constructors throw ConfigError for an inner optimizer that takes a closure or keeps an
/// average.
class Lookahead final : public WrappingOptimizer {
 public:
  using Options = LookaheadOptions;

  /// Groups are added later.
  explicit Lookahead(LookaheadOptions options);
  template <std::derived_from<Optimizer> T>
  explicit Lookahead(T inner, LookaheadOptions options = {})
      : Lookahead(std::make_shared<T>(std::move(inner)), std::move(options)) {}
  Lookahead(std::shared_ptr<Optimizer> inner, LookaheadOptions options);

  [[nodiscard]] std::string name() const override { return "Lookahead"; }
  [[nodiscard]] ConfigNode written_options() const override;

 private:
  at::Tensor do_step(const Closure* closure) override;
  State own_state() const override;
  void load_own_state(State& saved) override;

  LookaheadOptions options_;
  std::vector<at::Tensor> slow_ = {};  // of each parameter; shorter where parameters were added since
  int64_t steps_ = 0;                  // since the last return
};

}  // namespace levin
