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

#include <ATen/core/Tensor.h>
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

class StepEngine {
 public:
  /// A step of an evaluation, with all that belongs to it. Returns the prediction, or nothing.
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
  /// Before the first step whose result is kept: decides how losses are checked, and whether steps are recorded.
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
  /// The update of a window whose batches have ended before it was full. `place`: its last batch.
  void update_cut_window(const StepPlace& place);
  /// Whether the last step() was the last of its window.
  [[nodiscard]] bool window_is_done() const;
  /// After the last batch of a window: the next step opens another one.
  void close_window();
  /// Forgets the open window; the gradients stay.
  void drop_window();

  /// The next batch, or the running one before its step, is not computed: its loss counts as none.
  void skip_batch();
  /// Why training must go back to the newest checkpoint (nonfinite_loss: rollback), once; "": it need not.
  [[nodiscard]] std::string take_rollback();
  /// Waits until the losses of all windows are known. Throws NonFiniteLossError. `receives_flags`: all ranks do this,
  /// and act on what they have told each other.
  void finish_checks(bool receives_flags);
  [[nodiscard]] int64_t nonfinite_losses() const;
  /// Samples of one forward and backward pass; 0: a whole batch.
  [[nodiscard]] int64_t micro_batch_size() const;

  /// training_step alone, without backward: for measurements and for passes that are not part of training. Returns the
  /// loss with its graph, if gradients are enabled; undefined if there is none.
  at::Tensor forward(const Batch& batch, int64_t batch_idx);

  // ---- evaluation -------------------------------------------------------------------------------------------------
  /// A pass over loader number `loader` begins. Every rank by itself.
  void begin_pass(size_t loader);
  /// `step` on a batch, by replicas where there are some, recorded where record_steps allows it. Every rank by itself.
  [[nodiscard]] at::Tensor evaluate(size_t loader, const Batch& batch, int64_t batch_idx, EvaluationStep step);

  // ---- state ------------------------------------------------------------------------------------------------------
  /// Adds the open window, counters and loss weights to `state`. `in_batch`: a batch is being computed, so that a
  /// restored run begins the window anew. `failing`: the other ranks cannot be asked.
  /// Null for a run that has not trained.
  static void save(const StepEngine* engine, State& state, bool in_batch, bool failing);
  /// Continues from what save() has written. The window's batches begin at `next_batch` less those seen.
  void load(const State& saved, int64_t next_batch);
  /// Whether `gradients`, of a window that is still open, are finite on all ranks, so that a checkpoint may hold them.
  [[nodiscard]] bool keeps_gradients(const State& gradients, bool failing);
  /// Before the gradients of an open window are saved: ranks agree on the weights of losses.
  void agree_on_weights();

  /// For the files of trainer/step, and for what user code calls inside a step (log, step_output, set_loss_weight,
  /// manual_backward).
  [[nodiscard]] StepCore& core() { return *core_; }
  [[nodiscard]] const StepCore& core() const { return *core_; }

 private:
  std::unique_ptr<StepCore> core_;
  std::vector<std::shared_ptr<RecordedEvaluation>> evaluations_ = {};  // by loader
  bool is_done_ = false;
};

}  // namespace levin
