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
#include "levin/strategies/rank_notes.h"
#include "levin/trainer/lightning_optimizer.h"
#include "levin/trainer/optimizer_config.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/run/loaders.h"
#include "levin/trainer/run/tuning.h"
#include "levin/trainer/run/window.h"

namespace levin {

class BatchStream;
class KeptBuffers;
class LateCheck;
class MicroBatching;
class StepGraph;
class UnregisteredLeaves;
struct StepNotes;

/// What remains to be done for a training batch after its update, in this order.
enum class BatchRest { none, metrics, validation, schedulers };

// Note [Where a checkpoint continues]
// Progress and Epoch record exactly what has been done and what comes next, so a checkpoint saved between two batches,
// after a batch's update, before its validation or inside an accumulation window continues right there: the window's
// gradients are saved too. Only during a batch (in a hook of its step, after an exception in it) is there no such
// position: then the checkpoint goes back to the start of the batch's accumulation window, which is trained again.

/// The running epoch of a fit, and the place in it.
struct Epoch {
  bool running = false;        // between on_train_epoch_start and on_train_epoch_end
  bool batch_running = false;  // a batch is being computed: its update is not done
  int64_t batch_idx = -1;
  int64_t steps = 0;       // optimizer steps
  bool has_loss = false;   // a batch had one
  int64_t next_batch = 0;  // where a resumed epoch continues
  BatchRest rest = BatchRest::none;
  Window window = {};
  bool pass_ended = false;          // the loader has ended, and what follows the epoch's last batch was begun
  bool last_batch = false;          // the running batch is the last
  bool validation_follows = false;  // after the running batch, as far as that is known before its last hook
  bool cut = false;                 // skip_rest_of_epoch was called
  bool cut_wanted = false;          // with several ranks: the same, not yet known to the others
  bool logs_steps = true;           // false once the last batch is over
};

/// A position in a fit. Steps are counted as planned: see Note [Length of a resumed fit].
struct FitPosition {
  int64_t epochs = 0;          // completed
  int64_t steps = 0;           // optimizer steps before it
  int64_t steps_in_epoch = 0;  // of these, the ones of the running epoch
  int64_t next_batch = 0;      // in the running epoch
  int64_t window_left = 0;     // batches that the open accumulation window still takes; 0: none is open
  bool in_epoch = false;
  bool epoch_ends = false;  // no further batch of the running epoch follows
};

struct Fit {
  explicit Fit(const RunPlan& plan)
      : accumulate_grad_batches(plan.accumulate_grad_batches),
        effective_batch_size(plan.effective_batch_size),
        nonfinite_loss(plan.nonfinite_loss),
        lr_scale(plan.lr_scale) {}

  // From the plan, unless the fit overrides it (its loader's batch size, a trial run).
  int64_t accumulate_grad_batches = 1;
  int64_t effective_batch_size = 0;
  NonFiniteLoss nonfinite_loss = NonFiniteLoss::stop;
  LrScale lr_scale = LrScale::none;

  std::vector<LightningOptimizer> optimizers = {};
  std::vector<LRSchedulerConfig> schedulers = {};
  LoaderSet train = {};
  int64_t train_loaded_in_epoch = 0;
  int64_t eval_loaded_in_epoch = 0;
  Epoch epoch = {};
  LossWeights loss_weights = {};
  Tuning tuning = {};
  std::shared_ptr<MicroBatching> micro_batching = nullptr;  // null: a batch is one pass
  std::shared_ptr<StepGraph> step_graph = nullptr;          // with record_steps; null: every step runs as it is
  std::shared_ptr<LateCheck> late_check = nullptr;          // null: losses are checked at once
  std::shared_ptr<KeptBuffers> kept_buffers = nullptr;      // with nonfinite_loss: skip, if there are any
  bool acts_before_update = false;  // the module or a callback changes gradients after they are judged
  StepNotes* recording = nullptr;   // while a step is recorded: what the host must do after each replay
  BatchStream* batches = nullptr;   // of the running epoch

  // Where it continues from.
  FitPosition start = {};          // by the checkpoint
  bool resumed = false;            // from a checkpoint, before its first epoch begins
  State resumed_rng = {};          // the random numbers it continues with
  State resumed_loader = {};       // the state of each rank's loader, until the loader is made
  int64_t resumed_world_size = 0;  // ranks of the run it continues, and the batch size of each; 0: not known
  int64_t resumed_batch_size = 0;

  // When the values that plateau schedulers were stepped with were measured, by scheduler; see measured_metrics.h.
  std::vector<int64_t> metrics_used = {};
  ConfigNode configured = {};             // see Note [Options of a resumed run]; of the optimizers and schedulers
  double lr_factor = 1;                   // by which the configured learning rates were multiplied
  std::vector<int64_t> total_steps = {};  // that the run has filled in, by scheduler; 0: none
  // The names that the sanity check has logged; unset: it did not run.
  std::optional<std::set<std::string>> sanity_metrics = std::nullopt;
  std::vector<std::pair<std::string, std::string>> expected_metrics = {};  // who expects it, and its name
  bool warned_of_total_steps = false;
  bool printed_batches = false;

  int64_t saved_batches = -1;  // Progress::total_batches of the newest state that was saved whole, or requested

  // With several ranks.
  RankNotes to_say = {};     // sent with the next gradients that ranks reduce
  RankNotes heard = {};      // notes of any rank that have not been acted on yet
  bool told_memory = false;  // this rank's memory was printed
  bool looked_at_loss_shapes = false;
  bool looked_at_leaves = false;                         // whether all that the loss depends on is registered
  bool found_leaves = false;                             // some of it is not
  std::shared_ptr<UnregisteredLeaves> leaves = nullptr;  // while that is found out

  bool skip_batch = false;  // the running batch is skipped
  // Manual optimization with a loss scaler: whether a scaled gradient of the running batch overflowed; unset: no
  // optimizer was stepped.
  std::optional<bool> batch_overflowed = std::nullopt;
  int64_t rollbacks = 0;                        // since the last update with a finite loss
  std::string rollback_due = "";                // why the loop must go back to the newest checkpoint; "": it need not
  std::exception_ptr restore_failed = nullptr;  // of trial runs (TrialRuns): the fit ends with it
};

}  // namespace levin
