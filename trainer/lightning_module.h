// The model and what to do with it: subclass it, override the steps, and give it to a Trainer.
//
//   class Classifier : public levin::LightningModule {
//     torch::nn::Linear layer_{register_module("layer", torch::nn::Linear(784, 10))};
//     torch::Tensor training_step(const levin::Batch& batch) override {
//       auto [x, y] = batch.unpack<2>();
//       auto loss = torch::nn::functional::cross_entropy(layer_->forward(x), y);
//       log("train_loss", loss);
//       return loss;
//     }
//     levin::OptimizerConfig configure_optimizers() override { return levin::AdamW(parameters(), {.lr = 1e-3}); }
//   };
//
// One of the two public headers that include torch/nn/module.h.
#pragma once

#include <torch/nn/module.h>

#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/state.h"
#include "levin/data/batch.h"
#include "levin/data/data_module.h"
#include "levin/libtorch/version.h"  // for LEVIN_REGISTER_MODEL
#include "levin/loggers/log_values.h"
#include "levin/trainer/lightning_optimizer.h"
#include "levin/trainer/metrics.h"
#include "levin/trainer/optimizer_config.h"
#include "levin/trainer/trainer_options.h"

// Every model hides one form of a step that has two. GCC warns of this at the declaration of the hidden form.
#define LEVIN_BEGIN_TWO_FORMS _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Woverloaded-virtual\"")
#define LEVIN_END_TWO_FORMS _Pragma("GCC diagnostic pop")

namespace levin {

class Trainer;

/// The base of models: layers, the steps that use them, and the hooks around the steps. Each rank has its own module
/// and calls its steps and hooks on the training thread; with dp, and with the micro-batches of a pipeline, steps run
/// on the strategy's threads. Parameters and buffers must be registered, as in any torch::nn::Module; Levin moves them
/// to the device, saves and loads them. Errors that a hook throws end the run, with the hook, epoch and batch in the
/// text. The functions to call inside a step are not for other threads.
class LightningModule : public torch::nn::Module {
 public:
  LightningModule();
  /// Detaches the module from its trainers.
  ~LightningModule() override;
  LightningModule(const LightningModule&) = delete;
  LightningModule& operator=(const LightningModule&) = delete;

  static const char* registry_name() { return "model"; }

  // ---- the steps ------------------------------------------------------------------------------------------------
  // Override the form with or without the batch's index in its epoch (`batch_idx`). The trainer calls the form with the
  // index, which calls the other one. So a class that is to be derived from overrides the form without.
  LEVIN_BEGIN_TWO_FORMS
  /// Returns the loss of one batch: a tensor of one element with a graph. An undefined tensor skips the batch. In
  /// manual optimization the result is only passed on to the hooks.
  virtual at::Tensor training_step(const Batch& batch);
  virtual at::Tensor training_step(const Batch& batch, int64_t batch_idx);
  /// Logs the metrics of one batch; without gradients, and in evaluation mode.
  virtual void validation_step(const Batch& batch);
  virtual void validation_step(const Batch& batch, int64_t batch_idx);
  virtual void test_step(const Batch& batch);
  virtual void test_step(const Batch& batch, int64_t batch_idx);
  /// Returns what Trainer::predict returns for the batch; calls forward(batch[0]) unless overridden.
  virtual at::Tensor predict_step(const Batch& batch);
  virtual at::Tensor predict_step(const Batch& batch, int64_t batch_idx);
  LEVIN_END_TWO_FORMS
  virtual at::Tensor forward(const at::Tensor& input);

  // ---- what to train with -----------------------------------------------------------------------------------------
  /// Returns the optimizers and their learning-rate schedulers. Every rank returns the same.
  virtual OptimizerConfig configure_optimizers() { return {}; }
  /// Returns callbacks that the module needs; they replace callbacks of the trainer with the same class.
  virtual Callbacks configure_callbacks() { return {}; }
  /// Creates layers that are too large for the constructor, or depend on the data. Every entry point calls it, so it
  /// must keep layers that exist already.
  virtual void configure_model() {}
  virtual std::shared_ptr<Loader> train_dataloader() { return nullptr; }
  virtual Loaders val_dataloader() { return {}; }
  virtual Loaders test_dataloader() { return {}; }
  virtual Loaders predict_dataloader() { return {}; }

  // ---- hooks, in the order of docs/hooks.md ------------------------------------------------------------------------
  /// Downloads and unpacks. Called on one rank of every node, so it must not set members.
  virtual void prepare_data() {}
  virtual void setup(Stage) {}
  virtual void teardown(Stage) {}
  virtual void on_fit_start() {}
  virtual void on_fit_end() {}
  virtual void on_train_start() {}
  virtual void on_train_end() {}
  virtual void on_train_epoch_start() {}
  virtual void on_train_epoch_end() {}
  virtual void on_train_batch_start(const Batch&, int64_t /*batch_idx*/) {}
  /// `loss`: () detached and divided by the accumulation window's size; undefined if the step returned none.
  virtual void on_train_batch_end(const at::Tensor& /*loss*/, const Batch&, int64_t /*batch_idx*/) {}
  virtual void on_before_zero_grad(Optimizer&) {}
  virtual void on_before_backward(const at::Tensor& /*loss*/) {}
  virtual void on_after_backward() {}
  virtual void on_before_optimizer_step(Optimizer&) {}
  virtual void on_validation_model_zero_grad() { zero_grad(); }
  /// Switches to evaluation mode. Afterwards every layer returns to the mode it had.
  virtual void on_validation_model_eval() { eval(); }
  virtual void on_validation_model_train() {}
  virtual void on_test_model_eval() { eval(); }
  virtual void on_test_model_train() {}
  virtual void on_predict_model_eval() { eval(); }
  virtual void on_predict_model_train() {}
  virtual void on_validation_start() {}
  virtual void on_validation_end() {}
  virtual void on_validation_epoch_start() {}
  virtual void on_validation_epoch_end() {}
  virtual void on_validation_batch_start(const Batch&, int64_t /*batch_idx*/, int64_t /*dataloader_idx*/) {}
  virtual void on_validation_batch_end(const Batch&, int64_t /*batch_idx*/, int64_t /*dataloader_idx*/) {}
  virtual void on_test_start() {}
  virtual void on_test_end() {}
  virtual void on_test_epoch_start() {}
  virtual void on_test_epoch_end() {}
  virtual void on_test_batch_start(const Batch&, int64_t /*batch_idx*/, int64_t /*dataloader_idx*/) {}
  virtual void on_test_batch_end(const Batch&, int64_t /*batch_idx*/, int64_t /*dataloader_idx*/) {}
  virtual void on_predict_start() {}
  virtual void on_predict_end() {}
  virtual void on_predict_epoch_start() {}
  virtual void on_predict_epoch_end() {}
  virtual void on_predict_batch_start(const Batch&, int64_t /*batch_idx*/, int64_t /*dataloader_idx*/) {}
  virtual void on_predict_batch_end(const at::Tensor& /*prediction*/, const Batch&, int64_t /*batch_idx*/,
                                    int64_t /*dataloader_idx*/) {}
  virtual void on_exception(const std::exception&) {}
  /// Adds keys to a checkpoint, or changes its weights. Called on every rank.
  virtual void on_save_checkpoint(State& /*checkpoint*/) {}
  virtual void on_load_checkpoint(const State& /*checkpoint*/) {}

  // ---- parts of a step that may be replaced ------------------------------------------------------------------------
  virtual Batch on_before_batch_transfer(Batch batch, int64_t /*dataloader_idx*/) { return batch; }
  /// Returns the batch with its tensors on `device`.
  virtual Batch transfer_batch_to_device(Batch batch, at::Device device, int64_t dataloader_idx);
  virtual Batch on_after_batch_transfer(Batch batch, int64_t /*dataloader_idx*/) { return batch; }
  /// Clips the complete, unscaled gradients by norm or value if `clip_val` > 0. Override it to clip in a different way,
  /// or to call clip_gradients with different values.
  virtual void configure_gradient_clipping(Optimizer& optimizer, double clip_val, ClipAlgorithm algorithm);
  virtual void optimizer_zero_grad(Optimizer& optimizer);
  /// Updates the weights in automatic optimization, after clipping: optimizer.step(). Override it to warm up a learning
  /// rate, or to skip a step. Not called for an optimizer that needs a closure (LBFGS).
  virtual void optimizer_step(int64_t epoch, int64_t batch_idx, Optimizer& optimizer);
  /// Adds the gradients of `loss`, (), which is already divided by the window size and scaled: loss.backward(). Not
  /// called for micro-batches of a pipeline.
  virtual void backward(const at::Tensor& loss);
  /// Moves a scheduler. `metric` is set for plateau schedulers only.
  virtual void lr_scheduler_step(LRScheduler& scheduler, std::optional<double> metric);

  // ---- for the steps to call -------------------------------------------------------------------------------------
  /// Logs one number (docs/logging.md). Never waits for a device. Throws Error for a value that is not one element, a
  /// name that is empty, taken or reserved, and in hooks that do not allow it. A module without a trainer, such as a
  /// submodule of the module that is trained, drops the value and warns once.
  void log(std::string_view name, const at::Tensor& value, const LogOptions& options = {});
  void log(std::string_view name, double value, const LogOptions& options = {});
  /// Logs a metric that accumulates by itself, a member of the module (docs/metrics.md): its value over the epoch and
  /// all ranks. With on_step, its value for the latest batch.
  void log(std::string_view name, metrics::Metric& metric, const LogOptions& options = {});
  void log_dict(const std::map<std::string, at::Tensor>& values, const LogOptions& options = {});
  void log_dict(const std::map<std::string, double>& values, const LogOptions& options = {});
  /// Logs each metric of the collection by its name.
  void log_dict(metrics::MetricCollection& metrics, const LogOptions& options = {});
  // The following functions log values of other kinds; see Trainer.
  void log_histogram(std::string_view name, const at::Tensor& values);
  void log_image(std::string_view name, const at::Tensor& image);
  void log_text(std::string_view name, std::string_view text);
  void log_table(std::string_view name, LogTable table);
  void log_artifact(const std::string& path, std::string_view name = "");

  /// Sets how much this batch counts in its accumulation window, e.g. its number of tokens if the loss is a mean over
  /// them. The update is then the same as for one big batch, however unequal its parts are; unset: all batches count
  /// the same. Set it for every batch of a window, or for none. `weight`: a number >= 0, or a tensor () that may be on
  /// a device. Has no effect outside of training_step. Throws Error for a weight that is negative, not finite or not
  /// one element, with manual optimization, and with record_steps: true.
  void set_loss_weight(double weight);
  void set_loss_weight(const at::Tensor& weight);

  /// Gives the hooks after the batch a tensor, detached, which they read with trainer().step_output(); PredictionWriter
  /// also writes what predict_step gives. With dp, micro-batches and pipelines the rows of the parts become one tensor
  /// again, and numbers their mean weighted by samples; with several ranks each has its own. For training_step,
  /// validation_step, test_step and predict_step. Throws Error for a name that is empty or given twice in a step.
  void step_output(std::string_view name, const at::Tensor& value);

  /// Keeps the constructor's options for the logs and checkpoints.
  template <HasFields Options>
  void save_hyperparameters(const Options& options) {
    hparams_ = write_options(options);
  }
  void save_hyperparameters(ConfigNode hparams) { hparams_ = std::move(hparams); }
  [[nodiscard]] const ConfigNode& hparams() const { return hparams_; }

  /// Returns whether the trainer runs backward and the optimizer. With false (manual optimization) the step calls
  /// manual_backward and optimizers()[i].step() itself.
  [[nodiscard]] bool automatic_optimization() const { return automatic_optimization_; }
  void set_automatic_optimization(bool automatic) { automatic_optimization_ = automatic; }
  /// Adds the gradients of `loss`, of one element, scaled if the precision scales: the wrapped optimizer's step()
  /// undoes the scaling. Reduces the gradients over all ranks; every rank calls it. Throws Error with automatic
  /// optimization and outside of a step.
  void manual_backward(const at::Tensor& loss);
  /// Returns an optimizer of the running or last fit. Throws Error if there is none with this index.
  [[nodiscard]] LightningOptimizer& optimizer(size_t index = 0);
  [[nodiscard]] std::vector<LightningOptimizer>& optimizers();
  /// Returns a scheduler of the running or last fit, for manual optimization: lr_scheduler().step(). Throws Error if
  /// there is none with this index.
  [[nodiscard]] LRScheduler& lr_scheduler(size_t index = 0);
  [[nodiscard]] std::vector<LRSchedulerConfig>& lr_schedulers();
  /// Clips the gradients by their total norm, or each element; in manual optimization, gradients of a scaled loss are
  /// unscaled first. With sharded gradients every rank calls it.
  void clip_gradients(Optimizer& optimizer, double clip_val, ClipAlgorithm algorithm = ClipAlgorithm::norm);
  void clip_gradients(LightningOptimizer& optimizer, double clip_val, ClipAlgorithm algorithm = ClipAlgorithm::norm) {
    clip_gradients(optimizer.optimizer(), clip_val, algorithm);
  }
  /// Turns off gradients for all optimizers' parameters except this one's, until untoggle_optimizer. Throws Error if an
  /// optimizer is toggled already.
  void toggle_optimizer(Optimizer& optimizer);
  void toggle_optimizer(LightningOptimizer& optimizer) { toggle_optimizer(optimizer.optimizer()); }
  /// Restores the flags that toggle_optimizer has changed.
  void untoggle_optimizer(Optimizer& optimizer);
  void untoggle_optimizer(LightningOptimizer& optimizer) { untoggle_optimizer(optimizer.optimizer()); }

  /// Turns off gradients of all parameters and puts the layers into evaluation mode. unfreeze turns on gradients of all
  /// parameters and training mode.
  void freeze();
  void unfreeze();

  /// Returns every rank's tensor (same shape on all), rank by rank: (world_size, …), on the device of `value`, without
  /// gradients. Blocks until all arrive; every rank calls it. Throws Error without a trainer.
  [[nodiscard]] at::Tensor all_gather(const at::Tensor& value) const;

  /// Returns whether a checkpoint must contain exactly the module's weights, by name; with false the weights that match
  /// are loaded and the rest is reported, for modules whose checkpoints omit frozen weights.
  [[nodiscard]] bool strict_loading() const { return strict_loading_; }
  void set_strict_loading(bool strict) { strict_loading_ = strict; }

  /// Prints on rank 0, above the progress bar.
  void print(const std::string& text) const;

  [[nodiscard]] bool has_trainer() const { return trainer_ != nullptr; }
  /// Returns the last of the existing trainers that ran the module. Throws Error if there is none.
  [[nodiscard]] Trainer& trainer() const;
  // Without a trainer these are 0, and the device of the first parameter.
  [[nodiscard]] int64_t current_epoch() const;
  [[nodiscard]] int64_t global_step() const;
  [[nodiscard]] int64_t global_rank() const;
  /// Returns the index of the evaluation loader that the running step's batch came from.
  [[nodiscard]] int64_t dataloader_idx() const;
  [[nodiscard]] at::Device device() const;

 private:
  friend class ModuleAccess;
  /// Called by the registry, which finds it by its argument.
  friend void set_made_from(LightningModule& module, ClassSpec spec) { module.made_from_ = std::move(spec); }

  Trainer* trainer_ = nullptr;
  bool automatic_optimization_ = true;
  bool strict_loading_ = true;
  ConfigNode hparams_ = {};
  ClassSpec made_from_ = {};
  std::function<OptimizerConfig(LightningModule&)> optimizer_override_ = {};
  std::vector<std::pair<at::Tensor, bool>> toggled_ = {};  // requires_grad before toggle_optimizer
};

}  // namespace levin

#undef LEVIN_BEGIN_TWO_FORMS
#undef LEVIN_END_TWO_FORMS
