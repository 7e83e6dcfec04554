// Everything a Trainer consists of, shared by its loops and the hook caller. Internal: user code sees the Trainer only.
//
// Note [What lives how long]
// Run      as long as the Trainer: plan, strategy, precision, loggers, counters that continue over several fits
// EntryPoint   one fit or evaluation: module, callbacks, metrics
// Fit          one fit: optimizers, schedulers, loader        (a trial run has a separate one)
// Epoch        one epoch of it, and the position in it
// Window       one accumulation window, in the step engine
// Each is constructed again, by one assignment, where it begins; nothing is reset member by member.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/checkpoint/checkpoint_writer.h"
#include "levin/checkpoint/weights.h"
#include "levin/loggers/log_stream.h"
#include "levin/precision/precision.h"
#include "levin/profilers/profiler.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/metrics.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/run/entry_point.h"
#include "levin/trainer/run/fit.h"
#include "levin/trainer/run/kept_config.h"
#include "levin/trainer/run/logged_metrics.h"

namespace levin {

class DeviceCopier;
class RunReporter;
class StepHooks;
class Trainer;
struct PredictedBatch;

/// Counters that continue over several fits of one trainer and over restarts.
struct Progress : StepCounters {
  int64_t epoch = 0;          // epochs completed
  int64_t processed = 0;      // epochs completed, counted before on_train_epoch_end, for checkpoints saved in that hook
  int64_t windows = 0;        // accumulation windows completed: the loggers' step
  int64_t total_batches = 0;  // training batches done
  bool window_stepped = false;  // the last window that ended made an optimizer step
  int64_t num_threads = 0;      // of operators, as num_threads: auto has chosen; 0: not yet
};

/// The internals of a Trainer.
struct Run {
  Run(Trainer& owner, TrainerOptions given, RunPlan decided)
      : trainer(owner), options(std::move(given)), plan(std::move(decided)), auto_resume(plan.auto_resume), fit(plan) {}

  Trainer& trainer;
  TrainerOptions options;
  const RunPlan plan;
  bool auto_resume;            // by the plan, or because the launcher or Slurm has started this program again
  bool started_again = false;  // it continues where the last process stopped
  std::shared_ptr<Strategy> strategy = nullptr;
  std::shared_ptr<Precision> precision = nullptr;
  std::shared_ptr<Profiler> profiler = nullptr;
  std::shared_ptr<StepHooks> step_hooks = nullptr;
  std::shared_ptr<DeviceCopier> copier = nullptr;  // to the strategy's device; null: batches are copied when needed
  std::vector<std::shared_ptr<Logger>> loggers = {};
  std::unique_ptr<LogStream> log_stream = nullptr;  // to the loggers; null on other ranks than 0, and without loggers
  std::shared_ptr<RunReporter> reporter = nullptr;  // keeps run.json; null without loggers that keep files
  bool loggers_started = false;
  std::vector<std::string> new_folders = {};                      // of the loggers, made for this run
  bool has_trained = false;                                       // a training batch was done
  std::vector<std::shared_ptr<Callback>> trainer_callbacks = {};  // from the options, and the defaults
  CheckpointWriter checkpoint_writer;

  Progress progress = {};
  std::vector<int64_t> eval_batches_seen = {};  // per loader, over the whole run: the step of eval step metrics
  LoggedMetrics logged_metrics = {};
  std::string newest_checkpoint = "";  // the last that this run has written, or from which it continued
  std::optional<WeightsOptions> weights = std::nullopt;  // for the next entry point
  std::optional<KeptConfig> kept_config = std::nullopt;
  std::vector<std::vector<PredictedBatch>>* taken_outputs = nullptr;  // of predict_outputs, while it runs

  EntryPoint entry = {};       // the running or last one
  Trainer* earlier = nullptr;  // another trainer that has run its module, and whose module() it still is
  Fit fit;                     // the running or last one

  [[nodiscard]] bool has_peers() const { return strategy->ranks().world_size() > 1; }
  /// Returns whether a stop was requested and all ranks have agreed on it.
  [[nodiscard]] bool stops() const { return has_peers() ? entry.stop_agreed : entry.stop; }
  /// See Trainer::is_logged_window.
  [[nodiscard]] bool is_logged_window() const {
    return plan.log_every_n_steps > 0 && (stops() || plan.is_logged_step(progress.windows));
  }
  [[nodiscard]] bool min_limits_met() const {
    return progress.epoch >= plan.min_epochs && progress.global_step >= plan.min_steps;
  }
  [[nodiscard]] MetricStore& store() { return entry.phase == Phase::train ? entry.train_metrics : entry.eval_metrics; }
  [[nodiscard]] bool on_step() const { return entry.phase == Phase::train ? fit.epoch.logs_steps : entry.eval_on_step; }

  /// Returns the first logger's folder, or default_root_dir.
  [[nodiscard]] std::string log_dir() const;
  /// Copies what the running loop has logged so far to callback_metrics and bar_metrics.
  void refresh_callback_metrics();
  /// Replaces a value of callback_metrics, measured after `batches` training batches.
  void set_callback_metric(const std::string& name, double value, int64_t batches);
  /// Returns the number of training batches done, including the running one.
  [[nodiscard]] int64_t batches_done() const { return progress.total_batches + (fit.epoch.batch_running ? 1 : 0); }
  /// Sets how many batches the accumulation windows have that begin from now on. Nothing else writes the number.
  void set_accumulation(int64_t batches) { progress.accumulate = batches; }
  /// Remembers that training has logged the metric now.
  void note_logged(std::string_view name);
  template <class Value>
  void log_metric(std::string_view name, Value& value, const LogOptions& how) {
    const bool trains = &store() == &entry.train_metrics;
    store().log(entry.place, name, value, how, trains ? &entry.eval_metrics : &entry.train_metrics);
    if (entry.phase == Phase::train) note_logged(name);
  }
  /// Waits until the loggers have everything that was logged. Called before they are used directly.
  void drain_logs() const;
  /// Writes one row to every logger: at the window count with an `epoch` column, or at `step` without one unless
  /// `with_epoch`.
  void write_metrics(const Metrics& metrics, std::optional<int64_t> step = std::nullopt, bool with_epoch = false);
  /// Writes the training step's values as a row at the window count.
  void write_step_metrics();
  void write_row(MetricRow row, int64_t step);
  /// Returns whether this rank's values reach loggers: false on ranks other than 0, and in a trial.
  [[nodiscard]] bool writes_logs() const { return log_stream != nullptr && !loggers.empty(); }
};

}  // namespace levin
