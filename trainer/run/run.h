// Everything one run consists of, shared by the Trainer, its loops and the hook caller. Internal: user code sees the
// Trainer only.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "levin/checkpoint/checkpoint_writer.h"
#include "levin/checkpoint/weights.h"
#include "levin/core/folder_lock.h"
#include "levin/data/data_module.h"
#include "levin/loggers/logger.h"
#include "levin/precision/precision.h"
#include "levin/profilers/profiler.h"
#include "levin/profilers/time_split.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/kept_config.h"
#include "levin/trainer/lightning_optimizer.h"
#include "levin/trainer/metrics.h"
#include "levin/trainer/optimizer_config.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/run/tuning.h"
#include "levin/trainer/run/window.h"
#include "levin/trainer/run/window_weights.h"

namespace levin {

class DeviceCopier;
class LightningModule;
class MicroBatching;
class ModuleReplicas;
class Recomputation;
class SequentialCalls;
class StepGraph;
class Trainer;
struct StepNotes;

/// Which loop user code is called from; decides where `log` goes.
enum class Phase { idle, train, validate, test, predict };

/// What of a training batch is still to be done once its update is: the parts follow one another in this order.
enum class BatchRest { none, metrics, validation, schedulers };

// Note [Where a checkpoint continues]
// Progress says exactly what has been done and what comes next, so a checkpoint saved between two batches, after a
// batch's update, before its validation or inside an accumulation window continues right there: the window's gradients
// are saved too. Only while a batch is in the works (a hook of its step, an exception in it) there is no such place:
// then the checkpoint goes back to the start of the batch's accumulation window, which is trained again.

/// Counters of a fit. All continue over several fits of one trainer and over restarts.
struct Progress {
  int64_t epoch = 0;        // epochs completed
  int64_t processed = 0;    // the same, counted before on_train_epoch_end: what a checkpoint saved there continues with
  int64_t global_step = 0;  // optimizer steps
  int64_t skipped_steps = 0;   // optimizer steps not taken because a scaled gradient overflowed
  int64_t windows = 0;         // accumulation windows completed: the loggers' step
  int64_t total_batches = 0;   // training batches done
  int64_t batch_idx = -1;      // of the running epoch
  int64_t steps_in_epoch = 0;  // optimizer steps of the running epoch
  int64_t next_batch = 0;      // of the running epoch; where a resumed epoch continues
  bool in_epoch = false;       // between on_train_epoch_start and on_train_epoch_end
  bool in_batch = false;       // a batch is in the works: its update is not done
  BatchRest rest = BatchRest::none;
  Window window = {};           // the open accumulation window
  bool window_stepped = false;  // the last window that ended made an optimizer step
  int64_t accumulate = 1;       // batches of a window, from the next window on
};

/// What became of the checkpoints that a fit asked for.
struct Saves {
  int64_t good = 0;
  int64_t failed = 0;
  std::string last_failure = "";
};

/// The loaders of a run and how many batches each gives.
struct LoaderSet {
  Loaders loaders = {};
  std::vector<int64_t> num_batches = {};
  bool loaded = false;
};

struct Run {
  Run(Trainer& owner, TrainerOptions given, RunPlan decided)
      : trainer(owner), options(std::move(given)), plan(std::move(decided)) {}

  Trainer& trainer;
  TrainerOptions options;
  RunPlan plan;
  std::shared_ptr<Strategy> strategy;
  std::shared_ptr<ModuleReplicas> replicas;  // of the running entry point; null: the module computes whole batches
  std::shared_ptr<SequentialCalls> sequential_calls;  // of the running entry point
  std::shared_ptr<Recomputation> recomputation;       // of the running entry point; null: nothing is computed again
  std::shared_ptr<MicroBatching> micro_batching;      // of the running fit; null: a batch is one pass
  std::shared_ptr<Precision> precision;
  std::shared_ptr<Profiler> profiler;
  TimeSplit time_split;  // of the training steps of the running or last entry point
  std::vector<std::shared_ptr<Logger>> loggers;
  std::vector<std::shared_ptr<Callback>> trainer_callbacks;  // from the options, and the defaults
  std::vector<std::shared_ptr<Callback>> callbacks;          // with the module's own, checkpoints last
  bool loggers_started = false;
  std::vector<std::unique_ptr<FolderLock>> folder_locks;  // of the running entry point: no other run is alive in them
  std::shared_ptr<DeviceCopier> copier;  // of the strategy's device; null: batches are copied where they are needed

  // The running entry point.
  LightningModule* module = nullptr;
  DataModule* data = nullptr;
  std::optional<Stage> stage;
  bool entered = false;  // an entry point is running
  Phase phase = Phase::idle;
  bool sanity_checking = false;
  std::string ckpt_path;
  std::optional<WeightsOptions> weights;  // of the next entry point
  std::optional<KeptConfig> kept_config;
  bool records_due = false;  // those of an earlier run are there, and are renewed once training goes on
  std::chrono::steady_clock::time_point started = {};
  Seconds elapsed = Seconds(0);

  // Fit.
  Progress progress;
  std::vector<LightningOptimizer> optimizers;
  std::vector<LRSchedulerConfig> schedulers;
  LoaderSet train;
  LoaderSet eval;                  // of the running or last evaluation; in fit: the validation loaders
  bool started_again = false;      // this program, by the launcher or by Slurm: it goes on where the last start stood
  bool resumed = false;            // this fit continues from a checkpoint, and its first epoch has not begun yet
  State resumed_rng;               // the random numbers it continues with
  int64_t resumed_world_size = 0;  // ranks of the run it continues, and the batch size of each; 0: not known
  int64_t resumed_batch_size = 0;
  bool last_batch_of_epoch = false;
  bool epoch_cut = false;  // skip_rest_of_epoch was called
  std::string stop_reason;
  bool stop = false;
  bool stop_agreed = false;  // with several ranks: all know that one wants to stop
  bool cut_wanted = false;   // with several ranks: skip_rest_of_epoch was called, and the others do not know yet
  RankNotes to_say;          // with the next gradients that ranks reduce
  RankNotes heard;           // what any rank has said since somebody acted on it
  std::exception_ptr restore_failed;      // of trial runs (TrialRuns): the fit ends with it
  bool told_memory = false;               // what this rank holds was printed in this fit
  bool failing = false;                   // an exception is on its way out: the other ranks cannot be asked any more
  bool skip_batch = false;                // the running batch counts for nothing
  std::shared_ptr<StepGraph> step_graph;  // with cuda_graph; null: every step is launched by the host
  StepNotes* recording = nullptr;         // while a step is recorded: what the host must do after each repetition
  int64_t rollbacks = 0;                  // since the last update with a finite loss
  std::string rollback_due;               // why the loop is to go back to the newest checkpoint; "": it is not
  LossWeights loss_weights;
  Tuning tuning;
  // Manual optimization with a loss scaler: whether a scaled gradient of the running batch overflowed; unset: no
  // optimizer was stepped.
  std::optional<bool> batch_overflowed;
  int64_t train_loaded_in_epoch = 0;
  int64_t eval_loaded_in_epoch = 0;

  // Metrics.
  MetricStore train_metrics;
  MetricStore eval_metrics;
  MetricStore::Place place;
  bool train_on_step = true;  // false once the epoch's last batch is over
  bool eval_on_step = true;
  std::vector<int64_t> eval_batches_seen;  // per loader, over the whole run: the step of eval step metrics
  Metrics callback_metrics;
  Metrics logged_metrics;
  Metrics bar_metrics;

  std::optional<Hook> failed_hook;         // the innermost hook that an exception has left
  const std::type_info* caller = nullptr;  // the class whose hook is running; null: the module's, or not known
  size_t torn_down = 0;                    // how many had their teardown called in this entry point

  // Checkpoints that were asked for and are captured at the next border between two batches.
  std::vector<CheckpointRequest> checkpoint_requests;
  CheckpointWriter checkpoint_writer;
  Saves saves;  // of the running fit
  // The state (without weights) that a running validation began with: a stop inside it goes back there, and the
  // validation is run again.
  std::optional<State> before_validation;
  std::string newest_checkpoint;  // the last that was written in this run, or that it continued from

  [[nodiscard]] bool has_peers() const { return strategy->world_size() > 1; }
  /// Whether somebody wants to stop, and every rank knows it.
  [[nodiscard]] bool stops() const { return has_peers() ? stop_agreed : stop; }
  [[nodiscard]] bool min_limits_met() const {
    return progress.epoch >= plan.min_epochs && progress.global_step >= plan.min_steps;
  }
  [[nodiscard]] MetricStore& store() { return phase == Phase::train ? train_metrics : eval_metrics; }
  [[nodiscard]] bool on_step() const { return phase == Phase::train ? train_on_step : eval_on_step; }

  /// The first logger's folder, or default_root_dir.
  [[nodiscard]] std::string log_dir() const;
  /// Takes what the running loop has logged so far into callback_metrics and bar_metrics.
  void refresh_callback_metrics();
  /// One row to every logger: at the window count with an `epoch` column, or at `step` without one unless `with_epoch`.
  void write_metrics(const Metrics& metrics, std::optional<int64_t> step = std::nullopt, bool with_epoch = false);
};

}  // namespace levin
