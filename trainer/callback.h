// The interface of callbacks: override the hooks you need. Names and order are Lightning's (docs/hooks.md).
//
//   class PrintLoss : public levin::Callback {
//    public:
//     void on_train_epoch_end(levin::Trainer& trainer, levin::LightningModule&) override { … }
//   };
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <exception>
#include <string>

#include "levin/core/state.h"
#include "levin/data/batch.h"
#include "levin/data/data_module.h"
#include "levin/libtorch/version.h"  // for LEVIN_REGISTER_CALLBACK

namespace levin {

class LightningModule;
class Optimizer;
class Trainer;

/// The base of callbacks: objects whose hooks a Trainer calls during a run. Every hook does nothing unless overridden.
/// Each rank has its own callbacks, and calls their hooks on its training thread, in the order of the options and
/// before the module's hook of the same name. A hook logs with Trainer::log. An exception from a hook ends the run,
/// except one from on_exception or, while the run fails, from teardown: it is reported as a warning. Further interfaces
/// are for callbacks of a kind: Checkpoint, ChangesBatches, AccumulationSchedule, AveragesWeights, ReplacesDefault,
/// TakesSkippedSamples.
class Callback : public Stateful {
 public:
  /// Options refuse a callback that is passed by name: the run would use a copy, and the caller's would not change.
  static constexpr bool kOptionsMayCopy = false;

  static const char* registry_name() { return "callback"; }

  virtual void setup(Trainer&, LightningModule&, Stage) {}
  virtual void teardown(Trainer&, LightningModule&, Stage) {}
  /// Changes the module after configure_model and the weights of the run file's `weights`, before a checkpoint is
  /// loaded and before the optimizers are made: adds parameters, replaces or freezes some. Called in every stage, on
  /// every rank, and once for each replica of dp.
  virtual void adapt_model(Trainer&, LightningModule&) {}

  virtual void on_fit_start(Trainer&, LightningModule&) {}
  virtual void on_fit_end(Trainer&, LightningModule&) {}
  virtual void on_sanity_check_start(Trainer&, LightningModule&) {}
  virtual void on_sanity_check_end(Trainer&, LightningModule&) {}

  virtual void on_train_start(Trainer&, LightningModule&) {}
  virtual void on_train_end(Trainer&, LightningModule&) {}
  virtual void on_train_epoch_start(Trainer&, LightningModule&) {}
  virtual void on_train_epoch_end(Trainer&, LightningModule&) {}
  virtual void on_train_batch_start(Trainer&, LightningModule&, const Batch&, int64_t /*batch_idx*/) {}
  /// `loss`: () detached and divided by the accumulation window's size; undefined if the step returned none, nan or inf
  /// if TrainerOptions.nonfinite_loss lets the run continue after such a loss.
  virtual void on_train_batch_end(Trainer&, LightningModule&, const at::Tensor& /*loss*/, const Batch&,
                                  int64_t /*batch_idx*/) {}

  virtual void on_before_zero_grad(Trainer&, LightningModule&, Optimizer&) {}
  virtual void on_before_backward(Trainer&, LightningModule&, const at::Tensor& /*loss*/) {}
  virtual void on_after_backward(Trainer&, LightningModule&) {}
  virtual void on_before_optimizer_step(Trainer&, LightningModule&, Optimizer&) {}

  virtual void on_validation_start(Trainer&, LightningModule&) {}
  virtual void on_validation_end(Trainer&, LightningModule&) {}
  virtual void on_validation_epoch_start(Trainer&, LightningModule&) {}
  virtual void on_validation_epoch_end(Trainer&, LightningModule&) {}
  virtual void on_validation_batch_start(Trainer&, LightningModule&, const Batch&, int64_t /*batch_idx*/,
                                         int64_t /*dataloader_idx*/) {}
  virtual void on_validation_batch_end(Trainer&, LightningModule&, const Batch&, int64_t /*batch_idx*/,
                                       int64_t /*dataloader_idx*/) {}

  virtual void on_test_start(Trainer&, LightningModule&) {}
  virtual void on_test_end(Trainer&, LightningModule&) {}
  virtual void on_test_epoch_start(Trainer&, LightningModule&) {}
  virtual void on_test_epoch_end(Trainer&, LightningModule&) {}
  virtual void on_test_batch_start(Trainer&, LightningModule&, const Batch&, int64_t /*batch_idx*/,
                                   int64_t /*dataloader_idx*/) {}
  virtual void on_test_batch_end(Trainer&, LightningModule&, const Batch&, int64_t /*batch_idx*/,
                                 int64_t /*dataloader_idx*/) {}

  virtual void on_predict_start(Trainer&, LightningModule&) {}
  virtual void on_predict_end(Trainer&, LightningModule&) {}
  virtual void on_predict_epoch_start(Trainer&, LightningModule&) {}
  virtual void on_predict_epoch_end(Trainer&, LightningModule&) {}
  virtual void on_predict_batch_start(Trainer&, LightningModule&, const Batch&, int64_t /*batch_idx*/,
                                      int64_t /*dataloader_idx*/) {}
  virtual void on_predict_batch_end(Trainer&, LightningModule&, const at::Tensor& /*prediction*/, const Batch&,
                                    int64_t /*batch_idx*/, int64_t /*dataloader_idx*/) {}

  /// Called on a rank that fails; the other ranks may not, so it must not communicate with them.
  virtual void on_exception(Trainer&, LightningModule&, const std::exception&) {}

  /// Returns what the callback needs to continue after a restart. It is saved in checkpoints under state_key(). Called
  /// on every rank; rank 0's result is saved.
  [[nodiscard]] State state_dict() const override { return Stateful::state_dict(); }
  void load_state_dict(const State& saved) override { Stateful::load_state_dict(saved); }
  /// Returns a key that is unique among the trainer's callbacks with state: the class name, followed by the options
  /// that distinguish two callbacks of the same class.
  [[nodiscard]] virtual std::string state_key() const { return ""; }
  /// Returns the weights that checkpoints store instead of the module's, by name, such as their average; also for
  /// weights-only checkpoints. The module's own weights are stored for names that are absent. The State's values are
  /// stored next to the weights: what a reader of the weights must know, such as LoRA's scaling.
  [[nodiscard]] virtual State weights_to_save(const LightningModule&) const { return {}; }
  /// Adds keys to a checkpoint, or changes its weights. Not called for weights-only checkpoints (as in Lightning).
  virtual void on_save_checkpoint(Trainer&, LightningModule&, State& /*checkpoint*/) {}
  virtual void on_load_checkpoint(Trainer&, LightningModule&, const State& /*checkpoint*/) {}

  /// Returns whether its on_train_epoch_end must run after the module's, to see the values logged there, as for early
  /// stopping and checkpoints.
  [[nodiscard]] virtual bool is_monitoring() const { return false; }
};

}  // namespace levin
