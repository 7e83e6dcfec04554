// The optimizer as user code sees it in manual optimization: step() also fires the hooks and counts the step.
#pragma once

#include <memory>

#include "levin/optim/optimizer.h"

namespace levin {

class Trainer;

class LightningOptimizer {
 public:
  LightningOptimizer(Trainer& trainer, std::shared_ptr<Optimizer> optimizer)
      : trainer_(&trainer), optimizer_(std::move(optimizer)) {}

  /// on_before_optimizer_step, the update, global_step + 1.
  void step(const Optimizer::Closure& closure = {});
  void zero_grad() { optimizer_->zero_grad(); }

  [[nodiscard]] Optimizer& optimizer() { return *optimizer_; }
  [[nodiscard]] std::shared_ptr<Optimizer> shared() const { return optimizer_; }

 private:
  Trainer* trainer_;
  std::shared_ptr<Optimizer> optimizer_;
};

}  // namespace levin
