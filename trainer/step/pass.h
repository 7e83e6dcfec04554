// One forward and backward pass. Whole batches, micro-batches, the evaluations of an optimizer that takes a closure,
// and the micro-batches of a pipeline are passes, all run by run_pass. Every function is called by every rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "levin/data/batch.h"

namespace levin {

class Optimizer;
struct Run;
struct StepShare;

/// What is computed, and what it counts.
struct Pass {
  const Batch* batch = nullptr;  // null: this rank has nothing to compute, and waits for the others only
  int64_t batch_idx = 0;
  bool sync = true;                    // its gradients, and those that are there, become the same on all ranks
  bool opens_window = false;           // gradients are zeroed before its backward, with the hooks
  bool has_hooks = true;               // on_before_backward and on_after_backward are called for it
  int64_t parts = 1;                   // of the batch that it is one of
  double share = 1;                    // of the batch's samples
  StepShare* part = nullptr;           // what keeps the part's logged values and its weight; null: a whole batch
  const Optimizer* closure = nullptr;  // whose closure it is; null: none

  /// Told the loss (undefined: none) before backward; false: it counts for nothing. Every rank. Unset: it counts.
  std::function<bool(const at::Tensor&)> judge = {};
};

struct PassLoss {
  at::Tensor loss;     // () as training_step returned it; undefined: none, or it counts for nothing
  at::Tensor weight;   // () what set_loss_weight said; undefined: nothing
  at::Tensor counted;  // () what backward begins with, before it is scaled: divided by the window
};

/// before_forward, training_step, its checks, its weight, judging, zero_grad where the pass opens a window, backward.
/// Throws Error for a loss that is not one number, or has no gradient.
PassLoss run_pass(Run& run, const Pass& pass);

/// The same up to backward, which is the caller's: a pipeline runs it part by part, from the result. Undefined: no
/// loss. Called on the threads of the strategy's micro-batches, one at a time.
[[nodiscard]] at::Tensor begin_piped_pass(Run& run, const Pass& pass, PassLoss& result);

/// training_step under the precision's autocast: the loss, or undefined.
[[nodiscard]] at::Tensor run_training_step(Run& run, const Batch& batch, int64_t batch_idx);

/// Throws Error for a loss that is not one number, or has no gradient; an undefined one is good.
void check_loss(const at::Tensor& loss);

/// At the start of a window, with its hooks.
void zero_gradients(Run& run);

/// Backward of a loss that is not scaled yet; `sync` is false inside an accumulation window. What ranks have said with
/// the gradients is in Fit::heard afterwards.
void run_backward(Run& run, const at::Tensor& loss, bool sync, bool has_hooks = true);

/// The same on a rank that has no loss, while others have one.
void run_backward_without_loss(Run& run, bool sync);

}  // namespace levin
