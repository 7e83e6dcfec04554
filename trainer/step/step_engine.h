// One optimizer step at a time: forward and backward passes under the precision's autocast, accumulation,
// micro-batches, clipping, loss scaling, what happens with losses that are not finite, and recorded steps. The fit
// loop, the evaluation loop, trial runs and measurements are its clients; it knows neither epochs, loaders, callbacks,
// loggers nor checkpoints.
//
//   StepEngine engine({module, strategy, precision, …});
//   engine.use({optimizer});
//   for (const Batch& batch : batches) {
//     if (!engine.window_is_open()) engine.open_window(4);            // four batches make a step
//     const at::Tensor loss = engine.step(batch, {.batch_idx = k++});
//     if (engine.window_is_done()) engine.close_window();
//   }
//
// One thread. With several ranks every rank calls each function, except where it says otherwise.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/state.h"
#include "levin/data/batch.h"
#include "levin/trainer/step/step_parts.h"
#include "levin/trainer/step/window.h"

namespace levin {

class LightningModule;
class LightningOptimizer;
class Optimizer;
class RecordedEvaluation;
struct StepCore;

/// Computes optimizer steps and evaluation steps for a loop.
class StepEngine {
 public:
  /// Runs a step of an evaluation. Returns the prediction, or nothing.
  using EvaluationStep = c10::function_ref<at::Tensor(LightningModule&, const Batch&)>;

  explicit StepEngine(const StepParts& parts);
  ~StepEngine();
  StepEngine(const StepEngine&) = delete;
  StepEngine& operator=(const StepEngine&) = delete;

  // ---- training ---------------------------------------------------------------------------------------------------
  /// Sets the optimizers, in the order of configure_optimizers. Throws ConfigError for a combination of them with
  /// micro-batches or a loss scaler that is not possible.
  void use(const std::vector<std::shared_ptr<Optimizer>>& optimizers);
  [[nodiscard]] std::vector<LightningOptimizer>& optimizers();
  /// Decides how losses are checked, and whether steps are recorded. Called before the first step whose result is kept.
  /// Throws ConfigError if record_steps is true and they cannot be.
  void begin();
  /// Releases what begin() made. The optimizers and counters stay.
  void end();

  /// Begins an accumulation window of `size` batches, the first of which has this index.
  void open_window(int64_t size, int64_t first_batch);
  [[nodiscard]] const Window& window() const;
  [[nodiscard]] bool window_is_open() const;
  /// Runs training_step and what belongs to it; with the last batch of the window also the update. Returns the detached
  /// loss divided by the window's size, undefined if there is none; nan for a batch whose loss is not finite and is
  /// skipped. Throws NonFiniteLossError, OutOfMemoryError, Error for a loss that is not one number or has no gradient,
  /// and what the module throws.
  at::Tensor step(const Batch& batch, const StepPlace& place);
  /// Updates at the end of a window whose batches have ended before it was full. `place`: its last batch.
  void update_cut_window(const StepPlace& place);
  /// Returns whether the last step() was the last of its window.
  [[nodiscard]] bool window_is_done() const;
  /// Closes the window after its last batch.
  void close_window();
  /// Forgets the open window; the gradients stay.
  void drop_window();

  /// Skips the next batch, or the running one before its step: it counts as a batch without a loss. Ranks need not call
  /// it together.
  void skip_batch();
  /// Returns, once, why training must go back to the newest checkpoint (nonfinite_loss: rollback); "" if it need not.
  [[nodiscard]] std::string take_rollback();
  /// Waits until the losses of all windows are known. Throws NonFiniteLossError. `receives_flags`: all ranks
  /// call it now, and act on the flags that they have sent.
  void finish_checks(bool receives_flags);
  /// Returns the number of batches whose loss or gradient was not finite.
  [[nodiscard]] int64_t nonfinite_losses() const;
  /// Returns the samples of one forward and backward pass; 0: a whole batch.
  [[nodiscard]] int64_t micro_batch_size() const;

  /// Runs training_step without backward, for measurements and for passes that are not part of training. Returns the
  /// loss with its graph, if gradients are enabled; undefined if there is none.
  at::Tensor forward(const Batch& batch, int64_t batch_idx);

  // ---- evaluation -------------------------------------------------------------------------------------------------
  /// Begins a pass over loader number `loader`. Ranks need not call it together.
  void begin_pass(size_t loader);
  /// Runs `step` on a batch, on the module's replicas if there are some, and recorded if record_steps allows it. Ranks
  /// need not call it together.
  [[nodiscard]] at::Tensor evaluate(size_t loader, const Batch& batch, int64_t batch_idx, EvaluationStep step);

  // ---- state ------------------------------------------------------------------------------------------------------
  /// Adds the open window, counters and loss weights to `state`. `in_batch`: a batch is being computed, so that a
  /// restored run begins the window anew. `failing`: the other ranks no longer communicate. `engine`: null for a run
  /// that has not trained.
  static void save(const StepEngine* engine, State& state, bool in_batch, bool failing);
  /// Continues from what save() has written. `next_batch`: the first batch that the window has not seen.
  void load(const State& saved, int64_t next_batch);
  /// Returns whether `gradients`, of a window that is still open, are finite on all ranks, so that a checkpoint may
  /// contain them.
  [[nodiscard]] bool keeps_gradients(const State& gradients, bool failing);
  /// Makes the ranks agree on the weights of losses, before the gradients of an open window are saved.
  void agree_on_weights();

  /// Returns the state for the files of trainer/step, and for what user code calls inside a step (log, step_output,
  /// set_loss_weight, manual_backward).
  [[nodiscard]] StepCore& core() { return *core_; }
  [[nodiscard]] const StepCore& core() const { return *core_; }

 private:
  std::unique_ptr<StepCore> core_;
  std::vector<std::shared_ptr<RecordedEvaluation>> evaluations_ = {};  // by loader
  bool is_done_ = false;
};

}  // namespace levin
