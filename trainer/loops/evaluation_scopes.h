// The scopes around evaluation steps.
#pragma once

#include <utility>
#include <vector>

#include "levin/strategies/strategy.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/entry_point.h"

namespace levin {

/// With sharded weights, gathers them for an evaluation. Every rank enters and leaves it.
class WholeWeights {
 public:
  explicit WholeWeights(Strategy& strategy) : strategy_(strategy) { strategy_.begin_evaluation(); }
  ~WholeWeights() { strategy_.end_evaluation(); }
  WholeWeights(const WholeWeights&) = delete;
  WholeWeights& operator=(const WholeWeights&) = delete;

 private:
  Strategy& strategy_;
};

/// Puts every submodule into eval mode and afterwards back into the mode it had: a layer that the user keeps in eval
/// mode stays there.
class EvalMode {
 public:
  EvalMode(LightningModule& module, Phase phase) : module_(module), phase_(phase) {
    for (const auto& child : module.modules(/*include_self=*/false))
      modes_.emplace_back(child.get(), child->is_training());
    self_was_training_ = module.is_training();
    if (phase == Phase::validate) module.on_validation_model_eval();
    if (phase == Phase::test) module.on_test_model_eval();
    if (phase == Phase::predict) module.on_predict_model_eval();
  }
  /// The evaluation succeeded: the module's own hook may still throw.
  void end() {
    restore();
    if (phase_ == Phase::validate) module_.on_validation_model_train();
    if (phase_ == Phase::test) module_.on_test_model_train();
    if (phase_ == Phase::predict) module_.on_predict_model_train();
  }
  ~EvalMode() { restore(); }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  void restore() {
    if (std::exchange(restored_, true)) return;
    module_.train(self_was_training_);
    for (const auto& [child, was_training] : modes_) child->train(was_training);
  }

  LightningModule& module_;
  Phase phase_;
  bool restored_ = false;
  bool self_was_training_ = true;
  std::vector<std::pair<torch::nn::Module*, bool>> modes_ = {};
};

}  // namespace levin
