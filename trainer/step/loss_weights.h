// How much each batch of an accumulation window counts (LightningModule::set_loss_weight): the update follows
// sum(w_i loss_i) / sum(w_i) over the window and over all ranks, which is the big batch's where each loss is a mean
// over w_i tokens. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <vector>

#include "levin/core/state.h"

namespace levin {

struct StepCore;
struct StepShare;

// Note [Where a loss weight goes]
// The sum of a window's weights is known at its end, and gradients are added up before. So each loss is multiplied by
// its weight over a unit, and at the window's end the gradients by unit / sum: one pass over them, and with several
// ranks one message of a number. The unit keeps scaled losses the size that they have without weights (a float16
// gradient would overflow at 8192 tokens), and is a power of two: which one it is changes no bit of the result.
// Ranks must have the same unit before they reduce their gradients, and all of them must set weights. They agree on
// both once per fit, at the first reduction, so a run without weights sends nothing else.

/// Sets the running batch's weight (LightningModule::set_loss_weight). Throws Error for a weight that is negative, not
/// finite or not one number, and if weights have no meaning in this run.
void note_loss_weight(StepCore& core, const at::Tensor& weight);

/// Returns and resets the batch's weight.
[[nodiscard]] at::Tensor take_loss_weight(StepCore& core);

/// Adds a loss (undefined: none) of `parts` in the batch to the window with its weight (undefined: none). Returns the
/// loss, undefined if it does not count: a weight of 0 that is known without waiting for a device. Throws Error if some
/// batches of the window have a weight and others do not.
[[nodiscard]] at::Tensor weigh(StepCore& core, const at::Tensor& loss, const at::Tensor& weight, int64_t parts = 1);

/// Makes the ranks agree on whether there are weights, and on the unit. Every rank calls it before each backward; it
/// communicates before the first one that reduces gradients (`sync`).
void agree_on_weights(StepCore& core, bool sync);

/// Returns the loss that backward starts from: the loss times its part's fraction of the batch (`share`) over the
/// window's size, or times its weight over the unit.
[[nodiscard]] at::Tensor counted_loss(const StepCore& core, const at::Tensor& loss, const at::Tensor& weight,
                                      double share = 1);

/// Turns the gradients into gradients of the weighted mean. Returns true if there were weights; then the gradients need
/// no other division. Every rank calls it, at the end of a window. Throws Error for a weight on a device that was
/// negative or not a number.
bool normalize_gradients(StepCore& core);

/// Returns the mean loss of a batch whose parts have `losses`, weighted by the parts' weights if they have some,
/// otherwise by their samples. Undefined losses do not count. `note`: also sets the batch's weight to the sum of its
/// parts'.
[[nodiscard]] at::Tensor mean_of_shares(StepCore& core, const std::vector<at::Tensor>& losses,
                                        const std::vector<StepShare>& shares, bool note);

/// Multiplies the gradients of the optimizers' parameters.
void multiply_gradients(StepCore& core, double factor);

/// Saves the state of an open window. Ranks save the mean over all ranks, as for gradients, unless the run is failing.
void save_loss_weights(const StepCore& core, State& progress, bool in_batch, bool failing);
void load_loss_weights(StepCore& core, const State& progress);

}  // namespace levin
