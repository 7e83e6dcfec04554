// State with the lifetime of one fit, and of one epoch of it: constructed again for the next, never reset.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/state.h"
#include "levin/strategies/gradient_sync.h"
#include "levin/trainer/lightning_optimizer.h"
#include "levin/trainer/optimizer_config.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/run/loaders.h"
#include "levin/trainer/run/tuning.h"
#include "levin/trainer/step/step_engine.h"

namespace levin {

class BatchStream;

/// What remains to be done for a training batch after its update, in this order.
enum class PendingWork { none, metrics, validation, schedulers };

// Note [Where a checkpoint continues]
// Progress and Epoch record exactly what has been done and what comes next, so a checkpoint saved between two batches,
// after a batch's update, before its validation or inside an accumulation window continues right there: the window's
// gradients are saved too. Only during a batch (in a hook of its step, after an exception in it) is there no such
// position: then the checkpoint goes back to the start of the batch's accumulation window, which is trained again.

/// The running epoch of a fit, and the position in it.
struct Epoch {
  bool running = false;        // between on_train_epoch_start and on_train_epoch_end
  bool batch_running = false;  // a batch is being computed: its update is not done
  int64_t batch_idx = -1;
  int64_t first_step = 0;  // the global step when it began
  bool has_loss = false;   // a batch had a loss
  int64_t next_batch = 0;  // where a resumed epoch continues
  PendingWork pending = PendingWork::none;
  int64_t window_batches = 0;       // batches over all epochs before the running accumulation window
  State window_loader_state = {};   // the loader's state before the window's first batch was fetched
  bool pass_ended = false;          // the loader has ended, and what follows the epoch's last batch was begun
  bool last_batch = false;          // the running batch is the last
  bool validation_follows = false;  // after the running batch, as far as that is known before its last hook
  bool cut = false;                 // skip_rest_of_epoch was called
  bool cut_wanted = false;          // with several ranks: it was called on this rank, and the others do not know yet
  bool logs_steps = true;           // false once the last batch is over
};

/// A position in a fit. Steps are counted as planned: see Note [Length of a resumed fit].
struct FitPosition {
  int64_t epochs = 0;          // completed
  int64_t steps = 0;           // optimizer steps before it
  int64_t steps_in_epoch = 0;  // of these, the steps of the running epoch
  int64_t next_batch = 0;      // in the running epoch
  int64_t window_left = 0;     // batches that the open accumulation window still takes; 0: none is open
  bool in_epoch = false;
  bool epoch_ends = false;  // no further batch of the running epoch follows
};

/// A fit: its engine, schedulers, training loader and epoch, and what a checkpoint restores.
struct Fit {
  explicit Fit(const RunPlan& plan)
      : planned_accumulation(plan.accumulate_grad_batches),
        effective_batch_size(plan.effective_batch_size),
        nonfinite_loss(plan.nonfinite_loss),
        lr_scale(plan.lr_scale) {}

  // From the plan, unless the fit overrides it (its loader's batch size, a trial run).
  int64_t planned_accumulation = 1;  // batches of a window, unless a callback sets the current number
  int64_t effective_batch_size = 0;
  NonFiniteLoss nonfinite_loss = NonFiniteLoss::stop;
  LrScale lr_scale = LrScale::none;

  std::shared_ptr<StepEngine> engine = nullptr;  // null until the optimizers are set up
  std::vector<LRSchedulerConfig> schedulers = {};
  LoaderSet train = {};
  int64_t train_loaded_in_epoch = 0;
  int64_t eval_loaded_in_epoch = 0;
  Epoch epoch = {};
  Tuning tuning = {};
  std::shared_ptr<BatchStream> batches = nullptr;  // of the running epoch; null outside it

  [[nodiscard]] std::vector<LightningOptimizer>& optimizers() const;
  /// Returns whether an accumulation window has begun and its last batch is not done.
  [[nodiscard]] bool window_is_open() const { return engine != nullptr && engine->window_is_open(); }

  // The checkpoint from which it continues.
  FitPosition start = {};          // the position in the checkpoint
  bool resumed = false;            // a checkpoint was loaded, and the first epoch has not begun
  State resumed_rng = {};          // the random numbers it continues with
  State resumed_loader = {};       // the state of each rank's loader, until the loader is made
  int64_t resumed_world_size = 0;  // ranks of the run it continues, and the batch size of each; 0: not known
  int64_t resumed_batch_size = 0;

  // When the values that plateau schedulers were stepped with were measured, by scheduler; see measured_metrics.h.
  std::vector<int64_t> metrics_used = {};
  ConfigNode configured = {};             // see Note [Options of a resumed run]; of the optimizers and schedulers
  double lr_factor = 1;                   // by which the configured learning rates were multiplied
  std::vector<int64_t> total_steps = {};  // lengths that the run has filled in, by scheduler; 0: none
  // The names that the sanity check has logged; unset: it did not run.
  std::optional<std::set<std::string>> sanity_metrics = std::nullopt;
  std::vector<std::pair<std::string, std::string>> expected_metrics = {};  // who expects it, and its name
  bool warned_of_total_steps = false;
  bool printed_batches = false;
  bool rows_changed = false;  // select_rows was called: earlier checkpoints have other rows

  int64_t saved_batches = -1;  // Progress::total_batches of the newest state that was saved whole, or requested

  // With several ranks.
  RankFlags flags_to_send = {};   // with the next gradients that ranks reduce
  RankFlags received_flags = {};  // from any rank, until they are acted on
  bool reported_memory = false;   // this rank's memory was printed

  int64_t rollbacks = 0;                        // since a checkpoint was saved
  std::exception_ptr restore_failed = nullptr;  // of trial runs (TrialRuns): the fit ends with it
};

}  // namespace levin
