// The optimizer that user code steps in manual optimization.
//
//   levin::LightningOptimizer& optimizer = this->optimizer();           // in training_step
//   optimizer.zero_grad();  manual_backward(loss);  optimizer.step();
#pragma once

#include <memory>

#include "levin/optim/optimizer.h"

namespace levin {

struct StepCore;

/// An optimizer of the running or last fit, with what belongs to a step of the run: step() also calls the hooks and
/// counts the step, and with a scaled loss (precision: 16-mixed) it unscales the gradients, or skips the step if one of
/// them overflowed. Valid until the trainer's next fit begins. Every rank calls step(), on the training thread.
class LightningOptimizer {
 public:
  LightningOptimizer(StepCore& core, std::shared_ptr<Optimizer> optimizer)
      : core_(&core), optimizer_(std::move(optimizer)) {}

  /// Calls on_before_optimizer_step and configure_gradient_clipping, updates the weights and increments global_step. If
  /// a scaled gradient overflowed, none of these happens and the step counts as skipped. The scale is updated once per
  /// batch, after all optimizers. `closure`: for an optimizer that evaluates the loss several times (LBFGS); it zeroes
  /// the gradients, calls manual_backward and returns the loss. Throws NonFiniteLossError according to
  /// TrainerOptions::nonfinite_loss, and Error for a closure with a scaled loss and once the module is gone.
  void step(const Optimizer::Closure& closure = {});
  /// Zeroes the gradients of the optimizer's parameters, without calling a hook.
  void zero_grad();

  /// Divides the gradients by the loss scale, once until the next step or zero_grad; does nothing without a scale. step
  /// and LightningModule::clip_gradients call it; call it before reading gradients in training_step.
  void unscale_gradients();

  [[nodiscard]] Optimizer& optimizer() { return *optimizer_; }
  [[nodiscard]] std::shared_ptr<Optimizer> shared() const { return optimizer_; }

  /// Returns whether it was stepped in the batch, or its gradients are unscaled, and resets the former. The trainer
  /// calls it after each batch.
  bool end_batch();

 private:
  void step_with(const Optimizer::Closure& closure);

  StepCore* core_;
  std::shared_ptr<Optimizer> optimizer_;
  at::Tensor found_inf_;  // defined while the gradients are unscaled
  bool stepped_in_batch_ = false;
};

}  // namespace levin
