// Runs a LightningModule: fit, validate, test, predict.
//
//   levin::Trainer trainer(levin::TrainerOptions{.max_epochs = 3, .precision = "bf16-mixed"});
//   trainer.fit(model, levin::FashionMnist({.batch_size = 64}));
//
// A trainer may be used again: a second fit continues from the epoch the first one reached.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/checkpoint/weights.h"
#include "levin/core/options/units.h"
#include "levin/core/state.h"
#include "levin/data/data_module.h"
#include "levin/data/loader.h"
#include "levin/trainer/kept_config.h"
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

/// What predict returns: for each loader, the result of each batch, on the CPU.
using Predictions = std::vector<std::vector<at::Tensor>>;

class Trainer {
 public:
  explicit Trainer(Defaults = {}) : Trainer(TrainerOptions()) {}
  /// Throws ConfigError naming every option that is not possible.
  explicit Trainer(TrainerOptions options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // ---- entry points; `ckpt_path`: "" (start as the module is), a file, "best" or "last" -----------------------------
  void fit(LightningModule& module, DataModule& data, const std::string& ckpt_path = "");
  void fit(LightningModule& module, DataModule&& data, const std::string& ckpt_path = "");
  /// `train`: one loader, e.g. DataLoader(data, {.batch_size = 64}).
  void fit(LightningModule& module, Loaders train, Loaders val = {}, const std::string& ckpt_path = "");
  /// With the module's own loaders.
  void fit(LightningModule& module, const std::string& ckpt_path = "");

  /// One map of metrics per loader; none if a limit of 0 batches leaves nothing to evaluate.
  std::vector<Metrics> validate(LightningModule& module, DataModule& data, const std::string& ckpt_path = "");
  std::vector<Metrics> validate(LightningModule& module, DataModule&& data, const std::string& ckpt_path = "");
  std::vector<Metrics> validate(LightningModule& module, Loaders loaders, const std::string& ckpt_path = "");
  std::vector<Metrics> validate(LightningModule& module, const std::string& ckpt_path = "");
  std::vector<Metrics> test(LightningModule& module, DataModule& data, const std::string& ckpt_path = "");
  std::vector<Metrics> test(LightningModule& module, DataModule&& data, const std::string& ckpt_path = "");
  std::vector<Metrics> test(LightningModule& module, Loaders loaders, const std::string& ckpt_path = "");
  std::vector<Metrics> test(LightningModule& module, const std::string& ckpt_path = "");
  /// `return_predictions`: false keeps none, where a callback (PredictionWriter) takes them.
  Predictions predict(LightningModule& module, DataModule& data, const std::string& ckpt_path = "",
                      bool return_predictions = true);
  Predictions predict(LightningModule& module, DataModule&& data, const std::string& ckpt_path = "",
                      bool return_predictions = true);
  Predictions predict(LightningModule& module, Loaders loaders, const std::string& ckpt_path = "",
                      bool return_predictions = true);
  Predictions predict(LightningModule& module, const std::string& ckpt_path = "", bool return_predictions = true);

  /// During the result's lifetime, modules are created with weights in the number format of this run's precision
  /// (bf16-true, 16-true, 64-true), instead of float32 weights that are converted later. Null if that is float32.
  /// Weights are created on the CPU; the run moves them to its device.
  ///
  ///   std::shared_ptr<Gpt> model;
  ///   {
  ///     const auto scope = trainer.init_module();
  ///     model = std::make_shared<Gpt>(options);
  ///   }
  [[nodiscard]] std::shared_ptr<void> init_module() const;

  /// The next entry point starts from these weights unless it is given a checkpoint: they are read after
  /// configure_model, on every rank.
  void start_from(WeightsOptions weights);

  /// Sets the configuration of this run: it is written to config.yaml in the run's folder, compared with the file of
  /// the run that a fit with auto_resume continues, and compared between ranks at the start of every entry point.
  void keep_config(KeptConfig config);

  // ---- the run's progress --------------------------------------------------------------------------------------
  /// Epochs completed: k during epoch k and in its on_train_epoch_end, k + 1 after it.
  [[nodiscard]] int64_t current_epoch() const;
  /// Optimizer steps taken.
  [[nodiscard]] int64_t global_step() const;
  /// Optimizer steps not taken because a scaled gradient overflowed (precision: 16-mixed).
  [[nodiscard]] int64_t skipped_steps() const;
  /// Completed accumulation windows: what loggers count as steps.
  [[nodiscard]] int64_t logging_step() const;
  /// Training batches done, over all epochs.
  [[nodiscard]] int64_t seen_batches() const;
  /// Index of the running batch in its epoch or loader.
  [[nodiscard]] int64_t batch_idx() const;
  /// Whether the running training batch is the last of its epoch.
  [[nodiscard]] bool is_last_batch() const;
  /// In on_train_batch_end: whether the batch was the last of its accumulation window, so that its update is done, and
  /// the window is one whose metrics go to the loggers (log_every_n_steps).
  [[nodiscard]] bool ends_logged_window() const;
  [[nodiscard]] std::optional<Stage> stage() const;
  [[nodiscard]] bool sanity_checking() const;
  /// A training epoch is running, and no validation inside it.
  [[nodiscard]] bool training() const;
  /// Whether a fit automatically continues an earlier one: TrainerOptions::auto_resume, or because the launcher
  /// or Slurm has started this program again.
  [[nodiscard]] bool auto_resumes() const;
  /// Why the run ends early; "" if no stop was requested.
  [[nodiscard]] const std::string& stop_reason() const;
  [[nodiscard]] bool should_stop() const;
  /// Ends the run after this batch, once min_epochs and min_steps are met. May be called on another thread while a fit
  /// runs; the first request's reason counts.
  void request_stop(const std::string& reason);
  /// Skips the running batch: its training_step is not called. For on_train_batch_start.
  void skip_batch();
  /// Ends this epoch after this batch, as if it were the last; the gradients of an open accumulation window are
  /// dropped.
  void skip_rest_of_epoch();

  /// Batches per training epoch and per evaluation loader; kUnlimited if a loader does not know.
  [[nodiscard]] int64_t num_training_batches() const;
  [[nodiscard]] std::vector<int64_t> num_val_batches() const;
  [[nodiscard]] std::vector<int64_t> num_eval_batches() const;
  /// Optimizer steps of the whole fit; kUnlimited if open.
  [[nodiscard]] int64_t estimated_stepping_batches() const;
  [[nodiscard]] int64_t accumulate_grad_batches() const;
  /// For GradientAccumulationScheduler; takes effect with the next window.
  void set_accumulate_grad_batches(int64_t batches);
  /// Samples of one forward and backward pass with micro_batch_size; 0: a whole batch.
  [[nodiscard]] int64_t micro_batch_size() const;
  /// Whether a validation runs at the end of every training epoch (then epoch-end callbacks may wait for it).
  [[nodiscard]] bool validates_only_at_epoch_end() const;
  [[nodiscard]] bool has_validation() const;
  /// In on_train_batch_end: whether the batch is the last of a period of batches, epochs or the run, such as "500ba",
  /// "0.5ep" or "0.1dur": the same on every rank and after a resume. Throws Error for a period of time, and outside of
  /// a fit.
  [[nodiscard]] bool completes(const Period& period) const;
  /// The period resolved for this run: a share of a run that only max_time limits becomes a time. Throws ConfigError
  /// beginning with `path` for a share of a run without an end.
  [[nodiscard]] Period resolve_period(const Period& period, const std::string& path) const;

  /// Runs training_step on every batch of the training data once more, without gradients. Nothing is counted, logged
  /// values are dropped, and a running epoch continues with its next batch as if there had been no such pass; the
  /// loader's own state is restored. For callbacks that need the layers' statistics of the final weights. Every rank
  /// calls it, in a hook of fit. Throws Error in training_step, with manual optimization and outside of fit.
  void forward_training_batches();

  // ---- metrics ------------------------------------------------------------------------------------------------
  /// All logged values by name; callbacks monitor these. Reads values that are still on a device.
  [[nodiscard]] Metrics callback_metrics() const;
  /// What was last sent to the loggers.
  [[nodiscard]] const Metrics& logged_metrics() const;
  /// What was logged with prog_bar.
  [[nodiscard]] Metrics progress_bar_metrics() const;
  /// For callbacks; a module calls its own log.
  void log(std::string_view name, const at::Tensor& value, const LogOptions& options = {});
  void log(std::string_view name, double value, const LogOptions& options = {});
  void log(std::string_view name, metrics::Metric& metric, const LogOptions& options = {});
  /// In the hooks after a batch: what its step has published with LightningModule::step_output, and in training its
  /// loss. Freed after these hooks; a copy keeps the tensors.
  [[nodiscard]] const StepOutput& step_output() const;
  /// Sends values straight to the loggers and callback_metrics, outside of any reduction.
  void log_now(const Metrics& metrics, int64_t step);
  /// Figures of the machine, such as memory or temperature: to loggers that tell them from metrics, to the others as
  /// metrics.
  void log_system(const Metrics& figures, int64_t step);
  /// Values of other kinds, at logging_step(), for the loggers that take them; a warning says if none does. Only rank
  /// 0's are written. They are copied here; what else they cost (binning, compression) is done by the loggers' thread.
  void log_histogram(std::string_view name, const at::Tensor& values);
  /// (C, H, W), (H, W) or a batch (N, C, H, W), which becomes a grid; uint8, or floats from 0 to 1.
  void log_image(std::string_view name, const at::Tensor& image);
  /// Markdown.
  void log_text(std::string_view name, std::string_view text);
  void log_table(std::string_view name, LogTable table);
  /// A file that belongs to the run, e.g. a plot. It must exist until the run ends.
  void log_artifact(const std::string& path, std::string_view name = "");
  /// Waits until the loggers have everything that was logged; then they may be used directly until the next log.
  void flush_logs();

  // ---- parts ---------------------------------------------------------------------------------------------------
  [[nodiscard]] const RunPlan& plan() const;
  [[nodiscard]] const TrainerOptions& options() const;
  [[nodiscard]] Strategy& strategy() const;
  [[nodiscard]] int64_t global_rank() const;
  /// Of this rank on its machine.
  [[nodiscard]] int64_t local_rank() const;
  [[nodiscard]] int64_t world_size() const;
  [[nodiscard]] bool is_global_zero() const { return global_rank() == 0; }
  /// Prints a line on rank 0, above the progress bar.
  void print(const std::string& text) const;
  [[nodiscard]] at::Device device() const;
  [[nodiscard]] const std::vector<std::shared_ptr<Logger>>& loggers() const;
  /// The first logger's folder, or default_root_dir.
  [[nodiscard]] std::string log_dir() const;
  [[nodiscard]] const std::vector<std::shared_ptr<Callback>>& callbacks() const;
  /// The first callback of a class, or null.
  template <class T>
  [[nodiscard]] std::shared_ptr<T> callback() const {
    for (const auto& one : callbacks()) {
      if (auto found = std::dynamic_pointer_cast<T>(one)) return found;
    }
    return nullptr;
  }
  [[nodiscard]] std::vector<LightningOptimizer>& optimizers();
  [[nodiscard]] std::vector<LRSchedulerConfig>& lr_schedulers();
  [[nodiscard]] Profiler* profiler() const;
  /// Where the time of the training steps goes, of the running or last fit (profilers/time_split.h).
  [[nodiscard]] const TimeSplit& time_split() const;
  /// The loader of the running fit; null outside of it.
  [[nodiscard]] std::shared_ptr<Loader> train_dataloader() const;
  /// The module of the running or last entry point; null before, and when the module was destroyed.
  [[nodiscard]] LightningModule* module() const;
  /// The data module of the running entry point; null outside of one. Loaders passed to an entry point are wrapped in a
  /// data module.
  [[nodiscard]] DataModule* datamodule() const;

  // ---- checkpoints ----------------------------------------------------------------------------------------------
  /// Writes the entire state of the run (weights_only: only the module's), durably. Every rank calls it.
  void save_checkpoint(const std::string& path, bool weights_only = false);

  /// Requests a file with the state of the run after the current batch, written in the background unless the request
  /// says otherwise; with its present state where nothing runs. A failure is reported to the request's `done`, or to
  /// the console without one. Throws Error without a module. Every rank calls it.
  void request_checkpoint(CheckpointRequest request);
  /// Whether the entire state after the running batch has been written by this run, or requested.
  [[nodiscard]] bool state_is_saved() const;
  /// The estimated size of a checkpoint of this fit: weights, buffers and the optimizers' state.
  [[nodiscard]] uint64_t estimated_checkpoint_bytes() const;
  /// Waits until every requested file is on the disk or has failed.
  void finish_checkpoints();

  /// The checkpoint of the running or last entry point, with "best" and "last" resolved; "" without one.
  [[nodiscard]] const std::string& ckpt_path() const;

  /// Time spent in the last entry point.
  [[nodiscard]] Seconds elapsed() const;

 private:
  friend class RunAccess;

  std::unique_ptr<Run> run_;
};

}  // namespace levin
