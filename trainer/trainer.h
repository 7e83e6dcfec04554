// Runs a LightningModule: fit, validate, test, predict.
//
//   levin::Trainer trainer(levin::TrainerOptions{.max_epochs = 3, .precision = "bf16-mixed"});
//   trainer.fit(model, levin::FashionMnist({.batch_size = 64}));
//
// A trainer may be used again: a second fit continues from the epoch the first one reached.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/checkpoint/weights.h"
#include "levin/core/options/units.h"
#include "levin/core/state.h"
#include "levin/data/data_module.h"
#include "levin/data/loader.h"
#include "levin/trainer/metrics.h"
#include "levin/trainer/trainer_options.h"

namespace levin {

struct CheckpointRequest;
class LightningModule;
class LightningOptimizer;
struct LRSchedulerConfig;
struct Run;
struct RunPlan;
class StepOutput;
class TimeSplit;

/// The result of predict: for each loader, the result of each of this rank's batches, on the CPU.
using Predictions = std::vector<std::vector<at::Tensor>>;

/// A string, or what converts to one, but not braces.
template <class T>
concept CheckpointPath = std::convertible_to<const T&, std::string>;

/// Arguments of predict.
struct PredictOptions {
  std::string ckpt_path = "";
  bool return_predictions = true;  // false: keep none, because a callback (PredictionWriter) takes them
};

/// A run of a LightningModule: devices and ranks, loops, hooks, logging and checkpoints. Each rank has its own Trainer
/// and calls the same entry points in the same order. Strategy, loggers and counters last as long as the Trainer;
/// optimizers and metrics belong to one entry point, and can be read until the next one begins.
///
/// Not thread-safe: it is used on the thread that calls the entry points, except for request_stop.
class Trainer {
 public:
  explicit Trainer(Defaults = {}) : Trainer(TrainerOptions()) {}
  /// Starts the ranks if the options request several and no launcher has; the process that started them then ends here
  /// when they have. Throws ConfigError naming every option that is not possible.
  explicit Trainer(TrainerOptions options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // ---- entry points -------------------------------------------------------------------------------------------------
  // `ckpt_path`: "" (start with the module's weights), a checkpoint, a run's folder, "best" or "last". Every rank calls
  // them. They throw ConfigError for options that are not possible with this module and these data, CheckpointError for
  // a checkpoint that is missing, damaged or of another model, Interrupted for a stop from outside, NonFiniteLossError,
  // OutOfMemoryError, and what user code throws. Errors of LibTorch become Error, with the hook, epoch and batch. They
  // throw Error if this trainer or another one is running the module.

  /// Trains the module until a limit is reached or a stop is requested.
  void fit(LightningModule& module, DataModule& data, const std::string& ckpt_path = "");
  void fit(LightningModule& module, DataModule&& data, const std::string& ckpt_path = "");
  /// Same as above with loaders. `train`: one loader, e.g. DataLoader(data, {.batch_size = 64}).
  void fit(LightningModule& module, Loaders train, Loaders val = {}, const std::string& ckpt_path = "");
  /// Same as above without validation: fit(module, loader, "last").
  template <CheckpointPath Path>
  void fit(LightningModule& module, Loaders train, const Path& ckpt_path) {
    fit(module, std::move(train), Loaders(), ckpt_path);
  }
  /// Same as above with the module's own loaders.
  void fit(LightningModule& module, const std::string& ckpt_path = "");

  /// Evaluates the module with validation_step (or test_step), without gradients. Returns one map of metrics per
  /// loader; none if a limit of 0 batches leaves nothing to evaluate. Throws NoLoaderError without a loader.
  std::vector<Metrics> validate(LightningModule& module, DataModule& data, const std::string& ckpt_path = "");
  std::vector<Metrics> validate(LightningModule& module, DataModule&& data, const std::string& ckpt_path = "");
  std::vector<Metrics> validate(LightningModule& module, Loaders loaders, const std::string& ckpt_path = "");
  std::vector<Metrics> validate(LightningModule& module, const std::string& ckpt_path = "");
  std::vector<Metrics> test(LightningModule& module, DataModule& data, const std::string& ckpt_path = "");
  std::vector<Metrics> test(LightningModule& module, DataModule&& data, const std::string& ckpt_path = "");
  std::vector<Metrics> test(LightningModule& module, Loaders loaders, const std::string& ckpt_path = "");
  std::vector<Metrics> test(LightningModule& module, const std::string& ckpt_path = "");
  /// Calls predict_step for each batch and returns the results. Throws NoLoaderError without a loader.
  ///
  ///   trainer.predict(module, data, {.ckpt_path = "best", .return_predictions = false});
  Predictions predict(LightningModule& module, DataModule& data, const PredictOptions& options = {});
  Predictions predict(LightningModule& module, DataModule&& data, const PredictOptions& options = {});
  Predictions predict(LightningModule& module, Loaders loaders, const PredictOptions& options = {});
  Predictions predict(LightningModule& module, const PredictOptions& options = {});
  // The same with a path. Templates, because {.ckpt_path = "best"} would also make a string.
  template <CheckpointPath Path>
  Predictions predict(LightningModule& module, DataModule& data, const Path& ckpt_path,
                      bool return_predictions = true) {
    return predict(module, data, PredictOptions{ckpt_path, return_predictions});
  }
  template <CheckpointPath Path>
  Predictions predict(LightningModule& module, DataModule&& data, const Path& ckpt_path,
                      bool return_predictions = true) {
    return predict(module, data, PredictOptions{ckpt_path, return_predictions});
  }
  template <CheckpointPath Path>
  Predictions predict(LightningModule& module, Loaders loaders, const Path& ckpt_path, bool return_predictions = true) {
    return predict(module, std::move(loaders), PredictOptions{ckpt_path, return_predictions});
  }
  template <CheckpointPath Path>
  Predictions predict(LightningModule& module, const Path& ckpt_path, bool return_predictions = true) {
    return predict(module, PredictOptions{ckpt_path, return_predictions});
  }

  /// Returns a scope in which modules are created with weights in the number format of this run's precision (bf16-true,
  /// 16-true, 64-true), instead of float32 weights that are converted later; null if the format is float32. Weights are
  /// created on the CPU; the run moves them to its device.
  ///
  ///   std::shared_ptr<Gpt> model;
  ///   {
  ///     const auto scope = trainer.init_module();
  ///     model = std::make_shared<Gpt>(options);
  ///   }
  [[nodiscard]] std::shared_ptr<void> init_module() const;

  /// Sets the weights that the next entry point starts from, unless it is given a checkpoint. They are read after
  /// configure_model, on every rank. Throws ConfigError for options that are not possible.
  void start_from(WeightsOptions weights);

  // ---- the run's progress --------------------------------------------------------------------------------------
  // Counters continue over the trainer's fits, and over restarts from a checkpoint.

  /// Returns the number of completed epochs: k during epoch k and in its on_train_epoch_end, k + 1 after it.
  [[nodiscard]] int64_t current_epoch() const;
  /// Returns the number of optimizer steps taken.
  [[nodiscard]] int64_t global_step() const;
  /// Returns the number of optimizer steps not taken because a scaled gradient overflowed (precision: 16-mixed).
  [[nodiscard]] int64_t skipped_steps() const;
  /// Returns the number of completed accumulation windows, which loggers count as steps.
  [[nodiscard]] int64_t logging_step() const;
  /// Returns the number of training batches done, over all epochs.
  [[nodiscard]] int64_t seen_batches() const;
  /// Returns the index of the running training batch in its epoch; -1 before the first.
  [[nodiscard]] int64_t batch_idx() const;
  /// Returns whether the running training batch is the last of its epoch.
  [[nodiscard]] bool is_last_batch() const;
  /// Returns whether the step metrics of the running accumulation window go to the loggers: those of every
  /// log_every_n_steps-th window, and of all windows once a stop was requested. For on_train_batch_start.
  [[nodiscard]] bool is_logged_window() const;
  /// Returns whether the batch was the last of its accumulation window, so that its update is done, and the window's
  /// metrics go to the loggers (is_logged_window). For on_train_batch_end.
  [[nodiscard]] bool ends_logged_window() const;
  /// Returns the stage of the running or last entry point; unset before the first.
  [[nodiscard]] std::optional<Stage> stage() const;
  /// Returns whether the validation before training (num_sanity_val_steps) is running.
  [[nodiscard]] bool sanity_checking() const;
  /// Returns whether a training epoch is running, and no validation inside it.
  [[nodiscard]] bool training() const;
  /// Returns whether a fit automatically continues an earlier one: TrainerOptions::auto_resume, or because the launcher
  /// or Slurm has started this program again.
  [[nodiscard]] bool auto_resumes() const;
  /// Returns why the run ends early; "" if no stop was requested.
  [[nodiscard]] const std::string& stop_reason() const;
  /// Returns whether a stop was requested on this rank.
  [[nodiscard]] bool should_stop() const;
  /// Ends the run after this batch, once min_epochs and min_steps are met. The reason of the first request is kept. One
  /// rank may call it: the others stop after the same batch. While a fit runs, any thread may call it; the request is
  /// then handled between two batches.
  void request_stop(const std::string& reason = "request_stop() was called");
  /// Skips the running batch on this rank: its training_step is not called. For on_train_batch_start.
  void skip_batch();
  /// Ends this epoch after this batch, as if it were the last; the gradients of an open accumulation window are
  /// dropped. One rank may call it: the epoch ends for all of them at the batch by which all know.
  void skip_rest_of_epoch();

  /// Returns the batches of a training epoch on this rank; kUnlimited if the loader does not know, 0 before it is made.
  [[nodiscard]] int64_t num_training_batches() const;
  /// Returns the batches of each validation loader in fit and validate; empty in other stages.
  [[nodiscard]] std::vector<int64_t> num_val_batches() const;
  /// Returns the batches of each loader that is evaluated; in the sanity check at most num_sanity_val_steps each.
  [[nodiscard]] std::vector<int64_t> num_eval_batches() const;
  /// Returns the optimizer steps of the whole fit; kUnlimited if open. Creates the training loader if necessary. Throws
  /// Error after a fit that failed before its loader was known.
  [[nodiscard]] int64_t estimated_stepping_batches() const;
  /// Returns the batches of an accumulation window.
  [[nodiscard]] int64_t accumulate_grad_batches() const;
  /// Sets the batches of an accumulation window, from the next window on, for GradientAccumulationScheduler. Every rank
  /// calls it with the same number. Throws ConfigError below 1.
  void set_accumulate_grad_batches(int64_t batches);
  /// Returns the samples of one forward and backward pass with micro_batch_size; 0: a whole batch.
  [[nodiscard]] int64_t micro_batch_size() const;
  /// Returns whether validations run at the end of every training epoch and at no other time, so that epoch-end
  /// callbacks may wait for them.
  [[nodiscard]] bool validates_only_at_epoch_end() const;
  /// Returns whether an evaluation loader has batches.
  [[nodiscard]] bool has_validation() const;
  /// Returns whether the batch is the last of a period of batches, epochs or the run, such as "500ba", "0.5ep" or
  /// "0.1dur": the same answer on every rank and after a resume. For on_train_batch_end. Throws Error for a period of
  /// time, for a fraction of an epoch of unknown length, and if no training batch is running.
  [[nodiscard]] bool completes(const Period& period) const;
  /// Returns the period resolved for this run: a fraction of a run that only max_time limits becomes a time. Throws
  /// ConfigError beginning with `path` for a fraction of a run without an end.
  [[nodiscard]] Period resolve_period(const Period& period, const std::string& path) const;

  /// Runs training_step on every batch of the training data once more, without gradients. Nothing is counted, logged
  /// values are dropped, and a running epoch continues with its next batch as if there had been no such pass; the
  /// loader's own state is restored. For callbacks that need the layers' statistics for the final weights. Every rank
  /// calls it, in a hook of fit. Throws Error in training_step, with manual optimization and outside of fit.
  void forward_training_batches();

  // ---- metrics ------------------------------------------------------------------------------------------------
  /// Returns all logged values by name; callbacks monitor these. Waits for values that are still on a device.
  [[nodiscard]] Metrics callback_metrics() const;
  /// Returns the values last sent to the loggers.
  [[nodiscard]] const Metrics& logged_metrics() const;
  /// Returns the values logged with prog_bar. Waits for values that are still on a device.
  [[nodiscard]] Metrics progress_bar_metrics() const;
  /// Logs one number from a callback's hook (docs/logging.md); a module calls its own log. Never waits for a device.
  /// Every rank logs the same names. Throws Error for a value that is not one element, a name that is empty, taken or
  /// reserved, and in hooks that do not allow it.
  void log(std::string_view name, const at::Tensor& value, const LogOptions& options = {});
  void log(std::string_view name, double value, const LogOptions& options = {});
  void log(std::string_view name, metrics::Metric& metric, const LogOptions& options = {});
  /// Returns what the step has published with LightningModule::step_output, and in training its loss. For the hooks
  /// after a batch; it is freed after them, and a copy keeps the tensors.
  [[nodiscard]] const StepOutput& step_output() const;
  /// Sends values directly to the loggers and callback_metrics, without any reduction, as a row with this `step`.
  /// Throws Error for a name that is empty or reserved.
  void log_now(const Metrics& metrics, int64_t step);
  /// Sends measurements of the machine, such as memory or temperature, to the loggers; those that do not distinguish
  /// them from metrics get them as metrics.
  void log_system(const Metrics& figures, int64_t step);
  // The following functions log values of other kinds at logging_step(), to the loggers that take them; they warn if
  // none does. Only rank 0's values are written. They are copied here; the loggers' thread does the rest (binning,
  // compression). All throw Error for a name that is empty or has control characters.

  /// Logs the distribution of a tensor's elements. Throws Error for a tensor without elements.
  void log_histogram(std::string_view name, const at::Tensor& values);
  /// Logs an image (C, H, W), (H, W) or a batch (N, C, H, W), which becomes a grid; uint8, or floats from 0 to 1.
  /// Throws Error for other shapes.
  void log_image(std::string_view name, const at::Tensor& image);
  /// Logs Markdown text.
  void log_text(std::string_view name, std::string_view text);
  /// Logs a table. Throws Error for a row without a cell for each column.
  void log_table(std::string_view name, LogTable table);
  /// Logs a file that belongs to the run, e.g. a plot. It must exist until the run ends. `name`: the file's by default.
  void log_artifact(const std::string& path, std::string_view name = "");
  /// Waits until the loggers have everything that was logged; then they may be used directly until the next log.
  void flush_logs();

  // ---- parts ---------------------------------------------------------------------------------------------------
  /// Returns the options with every "auto" and unset value resolved.
  [[nodiscard]] const RunPlan& plan() const;
  /// Returns the options as they were given.
  [[nodiscard]] const TrainerOptions& options() const;
  [[nodiscard]] Strategy& strategy() const;
  [[nodiscard]] int64_t global_rank() const;
  /// Returns this rank's index on its node.
  [[nodiscard]] int64_t local_rank() const;
  [[nodiscard]] int64_t world_size() const;
  [[nodiscard]] bool is_global_zero() const { return global_rank() == 0; }
  /// Prints a line on rank 0, above the progress bar.
  void print(const std::string& text) const;
  /// Returns this rank's device; in a step of a strategy with several devices, the device of the calling replica.
  [[nodiscard]] at::Device device() const;
  [[nodiscard]] const std::vector<std::shared_ptr<Logger>>& loggers() const;
  /// Returns the first logger's folder, or default_root_dir.
  [[nodiscard]] std::string log_dir() const;
  /// Returns the callbacks in the order in which their hooks are called.
  [[nodiscard]] const std::vector<std::shared_ptr<Callback>>& callbacks() const;
  /// Returns the first callback of a class, or null.
  template <class T>
  [[nodiscard]] std::shared_ptr<T> callback() const {
    for (const auto& one : callbacks()) {
      if (auto found = std::dynamic_pointer_cast<T>(one)) return found;
    }
    return nullptr;
  }
  [[nodiscard]] std::vector<LightningOptimizer>& optimizers();
  [[nodiscard]] std::vector<LRSchedulerConfig>& lr_schedulers();
  /// Returns the profiler, or null.
  [[nodiscard]] Profiler* profiler() const;
  /// Returns how the time of the fit's training steps is divided among their parts (profilers/time_split.h).
  [[nodiscard]] const TimeSplit& time_split() const;
  /// Returns the training loader of the running fit; null outside of a fit.
  [[nodiscard]] std::shared_ptr<Loader> train_dataloader() const;
  /// Returns the module of the running or last entry point; null before the first, and once the module is destroyed.
  [[nodiscard]] LightningModule* module() const;
  /// Returns the data module of the running entry point; null outside of one. Loaders passed to an entry point are
  /// wrapped in a data module.
  [[nodiscard]] DataModule* datamodule() const;

  // ---- checkpoints ----------------------------------------------------------------------------------------------
  /// Writes the entire state of the run (weights_only: only the module's) and returns once it is on the disk. Every
  /// rank calls it. Throws Error without a module, or if the file cannot be written.
  void save_checkpoint(const std::string& path_or_url, bool weights_only = false);

  /// Requests a file with the state of the run after the current batch, written in the background unless the request
  /// is synchronous; if nothing runs, with the present state. A failure is reported to the request's `done`, or to
  /// the console without one. Throws Error without a module. Every rank calls it.
  void request_checkpoint(CheckpointRequest request);
  /// Returns whether the entire state after the running batch has been written by this run, or requested.
  [[nodiscard]] bool state_is_saved() const;
  /// Returns the estimated size of a checkpoint of this fit: weights, buffers and the optimizers' state. Throws Error
  /// without a module.
  [[nodiscard]] uint64_t estimated_checkpoint_bytes() const;
  /// Waits until every requested file is on the disk or has failed.
  void finish_checkpoints();

  /// Returns the checkpoint of the running or last entry point, with "best" and "last" resolved; "" without one.
  [[nodiscard]] const std::string& ckpt_path() const;

  /// Returns the time spent in the last entry point.
  [[nodiscard]] Seconds elapsed() const;

 private:
  friend class RunAccess;
  struct Guest {};

  /// A trainer that a Fabric drives: it leaves the program's standard streams alone.
  Trainer(TrainerOptions options, Guest);

  std::shared_ptr<Run> run_;
};

}  // namespace levin
