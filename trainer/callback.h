// The interface of callbacks: override the hooks you need. Names and order are Lightning's (docs/hooks.md). All hooks
// run on the training thread of every rank; whatever a hook logs goes through Trainer::log.
//
//   class PrintLoss : public levin::Callback {
//    public:
//     void on_train_epoch_end(levin::Trainer& trainer, levin::LightningModule&) override { … }
//   };
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <optional>
#include <string>

#include "levin/core/state.h"
#include "levin/data/batch.h"
#include "levin/data/data_module.h"

namespace levin {

class LightningModule;
class Optimizer;
class Trainer;

/// The best of a checkpoint callback's files.
struct BestCheckpoint {
  std::string monitor = "";  // "": none is monitored
  std::string mode = "";     // "min" or "max"
  std::optional<double> score = std::nullopt;
  std::string path = "";
};

class Callback {
 public:
  virtual ~Callback() = default;

  static const char* registry_name() { return "callback"; }

  virtual void setup(Trainer&, LightningModule&, Stage) {}
  virtual void teardown(Trainer&, LightningModule&, Stage) {}
  /// Changes the module after configure_model and the weights of the run file's `weights`, before a checkpoint is
  /// loaded and before the optimizers are made: adds parameters, replaces or freezes some. In every stage, on every
  /// rank, and once for each replica of dp.
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
  /// `loss` is detached and divided by the accumulation window; undefined if the step returned none,
  /// nan or inf where TrainerOptions.nonfinite_loss lets the run continue after such a loss.
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

  virtual void on_exception(Trainer&, LightningModule&, const std::exception&) {}

  /// What the callback needs to continue after a restart; saved in checkpoints under state_key().
  [[nodiscard]] virtual State state() const { return {}; }
  virtual void load_state(const State&) {}
  /// Unique among a trainer's callbacks that have state: the class name, plus whatever distinguishes two of the same
  /// class.
  [[nodiscard]] virtual std::string state_key() const { return ""; }
  /// The weights that checkpoints store instead of the module's, by name, such as their average; weights-only
  /// checkpoints too. For names that are absent the module's own weights are stored. Its values are stored beside
  /// them: what a reader of the weights must know, such as LoRA's scaling.
  [[nodiscard]] virtual State weights_to_save(const LightningModule&) const { return {}; }
  /// Not called for weights-only checkpoints (as in Lightning).
  virtual void on_save_checkpoint(Trainer&, LightningModule&, State& /*checkpoint*/) {}
  virtual void on_load_checkpoint(Trainer&, LightningModule&, const State& /*checkpoint*/) {}

  /// Bytes of the tensors that it keeps on the module's device during training, such as an average of the weights; the
  /// memory planner adds them to a step's memory.
  [[nodiscard]] virtual int64_t held_bytes(const LightningModule&) const { return 0; }

  /// Whether its on_train_epoch_end must run after the module's, to see the values logged there: early stopping and
  /// checkpoints do.
  [[nodiscard]] virtual bool is_monitoring() const { return false; }
  /// "progress_bar" or "summary" if it replaces the trainer's default of that kind.
  [[nodiscard]] virtual std::string default_for() const { return ""; }
  /// Whether it is a checkpoint callback: those run after all others.
  [[nodiscard]] virtual bool is_checkpoint() const { return false; }
  /// For a checkpoint callback: the path of "best" or "last", "" if there is none; for "interrupted", where a stopped
  /// run is saved.
  [[nodiscard]] virtual std::string checkpoint_path(Trainer&, const std::string& /*which*/) { return ""; }
  /// For a checkpoint callback: what it monitors, and the best so far.
  [[nodiscard]] virtual BestCheckpoint best_checkpoint() const { return {}; }
};

}  // namespace levin
