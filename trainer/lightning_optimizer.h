// The optimizer as user code sees it in manual optimization: step() also fires the hooks and counts the step, and with
// a scaled loss (precision: 16-mixed) it unscales the gradients, or skips the step if one of them overflowed.
#pragma once

#include <memory>

#include "levin/optim/optimizer.h"

namespace levin {

struct StepCore;

/// Of the running or last fit: valid until the trainer's next fit begins.
class LightningOptimizer {
 public:
  LightningOptimizer(StepCore& core, std::shared_ptr<Optimizer> optimizer)
      : core_(&core), optimizer_(std::move(optimizer)) {}

  /// on_before_optimizer_step, the update, global_step + 1. If a scaled gradient overflowed, none of these happens and
  /// the step counts as skipped. The scale is updated once per batch, after all optimizers. Throws Error for a closure
  /// with a scaled loss, and after the module's end.
  void step(const Optimizer::Closure& closure = {});
  void zero_grad();

  /// Divides the gradients by the loss scale, once until the next step or zero_grad; does nothing without a scale. step
  /// and LightningModule::clip_gradients call it; call it before looking at gradients in training_step.
  void unscale_gradients();

  [[nodiscard]] Optimizer& optimizer() { return *optimizer_; }
  [[nodiscard]] std::shared_ptr<Optimizer> shared() const { return optimizer_; }

  /// For the trainer, after each batch: whether it was stepped in the batch, which is then reset, or its gradients are
  /// unscaled.
  bool end_batch();

 private:
  void step_with(const Optimizer::Closure& closure);

  StepCore* core_;
  std::shared_ptr<Optimizer> optimizer_;
  at::Tensor found_inf_;  // defined while the gradients are unscaled
  bool stepped_in_batch_ = false;
};

}  // namespace levin
