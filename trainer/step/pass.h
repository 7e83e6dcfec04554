// One forward and backward pass. Whole batches, micro-batches, the evaluations of an optimizer that takes a closure,
// and the micro-batches of a pipeline are passes, all run by run_pass. Every function is called by every rank.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <functional>

#include "levin/data/batch.h"

namespace levin {

class Optimizer;
struct StepCore;
struct StepShare;

/// The batch of a pass, and what its backward does with the gradients.
struct Pass {
  const Batch* batch = nullptr;  // null: this rank has nothing to compute, and only waits for the others
  int64_t batch_idx = 0;
  bool sync = true;                    // its gradients, and the accumulated ones, are reduced over all ranks
  bool opens_window = false;           // gradients are zeroed before its backward, with the hooks
  bool has_hooks = true;               // on_before_backward and on_after_backward are called for it
  int64_t parts = 1;                   // number of passes of the batch
  double share = 1;                    // fraction of the batch's samples
  StepShare* part = nullptr;           // receives the part's logged values and its weight; null: a whole batch
  const Optimizer* closure = nullptr;  // whose closure it is; null: none

  /// Called with the loss (undefined: none) before backward, on every rank; returns false if the loss does not count.
  /// Unset: it counts.
  std::function<bool(const at::Tensor&)> judge = {};
};

/// The loss of a pass.
struct PassLoss {
  at::Tensor loss;     // () as training_step returned it; undefined: none
  at::Tensor weight;   // () set by set_loss_weight; undefined: not set
  at::Tensor counted;  // () the root of backward, before scaling: divided by the window; undefined: it does not count
};

/// Runs before_forward, training_step and its checks, weighs and judges the loss, zeroes gradients if the pass opens a
/// window, and runs backward. Throws Error for a loss that is not one number, or has no gradient.
PassLoss run_pass(StepCore& core, const Pass& pass);

/// Runs a pass up to backward, which a pipeline runs stage by stage. Returns the root of backward; undefined: no loss.
/// Called on the threads of the strategy's micro-batches, one at a time.
[[nodiscard]] at::Tensor begin_piped_pass(StepCore& core, const Pass& pass, PassLoss& result);

/// Runs training_step under the precision's autocast. Returns the loss, or undefined.
[[nodiscard]] at::Tensor run_training_step(StepCore& core, const Batch& batch, int64_t batch_idx);

/// Throws Error for a loss that is not one number, or has no gradient; an undefined one is allowed.
void check_loss(const at::Tensor& loss);

/// Zeroes the gradients at the start of a window, with the hooks.
void zero_gradients(StepCore& core);

/// Runs backward of a loss that is not scaled yet; `sync` is false inside an accumulation window. Flags that ranks sent
/// with the gradients are received afterwards (StepCore::receive).
void run_backward(StepCore& core, const at::Tensor& loss, bool sync, bool has_hooks = true);

/// Takes part in the reduction of gradients on a rank that has no loss, while others have one.
void run_backward_without_loss(StepCore& core, bool sync);

}  // namespace levin
