// The scopes around evaluation steps.
#pragma once

#include <utility>
#include <vector>

#include "levin/core/process/main_guard.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/entry_point.h"

namespace levin {

/// With sharded weights, gathers them for an evaluation. Every rank enters and leaves it.
class WholeWeights {
 public:
  explicit WholeWeights(Strategy& strategy) : strategy_(strategy) { strategy_.begin_evaluation(); }
  /// The evaluation succeeded: the strategy's own function may still throw.
  void end() {
    if (!std::exchange(ended_, true)) strategy_.end_evaluation();
  }
  ~WholeWeights() {
    warn_if_it_throws("end_evaluation of the strategy", [this] { end(); });
  }
  WholeWeights(const WholeWeights&) = delete;
  WholeWeights& operator=(const WholeWeights&) = delete;

 private:
  Strategy& strategy_;
  bool ended_ = false;
};

/// Puts every submodule into eval mode and afterwards back into the mode it had: a layer that the user keeps in eval
/// mode stays there.
class EvalMode {
 public:
  EvalMode(EntryPoint& entry, LightningModule& module, Phase phase) : entry_(entry), module_(module), phase_(phase) {
    for (const auto& child : module.modules(/*include_self=*/false))
      modes_.emplace_back(child.get(), child->is_training());
    self_was_training_ = module.is_training();
    call(Hook::on_validation_model_eval, Hook::on_test_model_eval, Hook::on_predict_model_eval,
         &LightningModule::on_validation_model_eval, &LightningModule::on_test_model_eval,
         &LightningModule::on_predict_model_eval);
  }
  /// The evaluation succeeded: the module's own hook may still throw.
  void end() {
    restore();
    call(Hook::on_validation_model_train, Hook::on_test_model_train, Hook::on_predict_model_train,
         &LightningModule::on_validation_model_train, &LightningModule::on_test_model_train,
         &LightningModule::on_predict_model_train);
  }
  ~EvalMode() { restore(); }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  using Call = void (LightningModule::*)();

  // Calls the function of the phase.
  void call(Hook validate, Hook test, Hook predict, Call in_validate, Call in_test, Call in_predict) {
    const bool tests = phase_ == Phase::test, predicts = phase_ == Phase::predict;
    const HookScope scope(entry_, tests ? test : predicts ? predict : validate);
    (module_.*(tests ? in_test : predicts ? in_predict : in_validate))();
  }
  void restore() {
    if (std::exchange(restored_, true)) return;
    module_.train(self_was_training_);
    for (const auto& [child, was_training] : modes_) child->train(was_training);
  }

  EntryPoint& entry_;
  LightningModule& module_;
  Phase phase_;
  bool restored_ = false;
  bool self_was_training_ = true;
  std::vector<std::pair<torch::nn::Module*, bool>> modes_ = {};
};

}  // namespace levin
