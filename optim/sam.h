// Sharpness-aware minimisation (Foret et al. 2020, https://arxiv.org/abs/2010.01412): every step takes the gradient
// where the loss around the weights is about highest, so that training ends in flat minima. Two passes a step.
//
//   SAM optimizer(SGD(model.parameters(), {.lr = 0.1, .momentum = 0.9}), {.rho = 0.05});
//   optimizer.step([&] { optimizer.zero_grad(); auto loss = …; loss.backward(); return loss; });
//
// In a run file: optimizer: {class_path: SAM, init_args: {rho: 0.05, optimizer: {class_path: SGD, init_args: {…}}}}
#pragma once

#include <concepts>
#include <memory>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/optim/wrapping_optimizer.h"

namespace levin {

/// Options of SAM.
struct SAMOptions {
  ClassSpec optimizer = {};
  double rho = 0.05;
  bool adaptive = false;

  template <class = void>
  static auto fields() {
    using O = SAMOptions;
    return levin::fields(
        field("optimizer", &O::optimizer, "the optimizer that takes the step").not_empty(),
        field("rho", &O::rho, "how far from the weights the gradient is taken, as a norm over all of them").min(0.0),
        field("adaptive", &O::adaptive, "distances relative to the size of each weight (Kwon et al. 2021)"));
  }
};

/// SAM around an inner optimizer. Every rank calls step(): the first pass's gradients are reduced over all ranks (ddp),
/// so that all ranks climb to the same point. step() returns the first pass's loss. State: the inner optimizer's.
/// Constructors throw ConfigError for an inner optimizer that takes a closure or keeps an average.
class SAM final : public WrappingOptimizer {
 public:
  using Options = SAMOptions;

  /// Groups are added later.
  explicit SAM(SAMOptions options);
  template <std::derived_from<Optimizer> T>
  explicit SAM(T inner, SAMOptions options = {}) : SAM(std::make_shared<T>(std::move(inner)), std::move(options)) {}
  SAM(std::shared_ptr<Optimizer> inner, SAMOptions options);

  [[nodiscard]] std::string name() const override { return "SAM"; }
  [[nodiscard]] ConfigNode written_options() const override;
  [[nodiscard]] bool needs_closure() const override { return true; }

 private:
  at::Tensor do_step(const Closure* closure) override;
  /// Moves the parameters to where the gradient is to be taken; returns their values before.
  [[nodiscard]] std::vector<at::Tensor> climb(const std::vector<at::Tensor>& params) const;

  SAMOptions options_;
};

}  // namespace levin
