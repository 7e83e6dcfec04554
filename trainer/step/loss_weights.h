// How much each batch of an accumulation window counts (LightningModule::set_loss_weight): the update is that of
// sum(w_i loss_i) / sum(w_i) over the window and over all ranks, which is the big batch's where each loss is a mean
// over w_i tokens. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "levin/core/state.h"

namespace levin {

struct Fit;
struct Run;
struct StepShare;

// Note [Where a loss weight goes]
// The sum of a window's weights is known at its end, and gradients are added up before. So each loss is multiplied by
// its weight over a unit, and at the window's end the gradients by unit / sum: one pass over them, and with several
// ranks one message of a number. The unit keeps scaled losses the size that they have without weights (a float16
// gradient would overflow at 8192 tokens), and is a power of two: which one it is changes no bit of the result.
// Ranks must have the same unit before they add up their gradients, and know that all of them say weights. They agree
// on both once a fit, at the first reduction, so that a run without weights sends nothing more than that.

/// What LightningModule::set_loss_weight does. Outside of the training steps of a fit nothing. Throws Error for a
/// weight that is negative, not finite or not one number, and where weights have no meaning.
void note_loss_weight(Run& run, const at::Tensor& weight);

/// What the batch has said, which is forgotten.
[[nodiscard]] at::Tensor take_loss_weight(Fit& fit);

/// Takes a loss (undefined: none) of `parts` in the batch into the window with its weight (undefined: none). Returns
/// the loss, undefined if it counts for nothing: a weight of 0 that is known without waiting for a device. Throws Error
/// if others of the window have said a weight and this one has not, or the other way round.
[[nodiscard]] at::Tensor weigh(Run& run, const at::Tensor& loss, const at::Tensor& weight, int64_t parts = 1);

/// With several ranks, before the first backward that adds up their gradients (`sync`): every rank.
void agree_on_weights(Run& run, bool sync);

/// What backward begins with: the loss times its `share` of the batch over the window's size, or its weight over the
/// unit.
[[nodiscard]] at::Tensor counted_loss(const Fit& fit, const at::Tensor& loss, const at::Tensor& weight,
                                      double share = 1);

/// At the window's end: gradients become those of the weighted mean. Every rank. Throws Error for a weight on a device
/// that was negative or not a number. True: there were weights, and the gradients need no other division.
bool normalize_gradients(Run& run);

/// The mean loss of a batch whose parts are `losses`: by their weights if they said some, else by `sizes`. Undefined
/// ones count for nothing. The batch's own weight is then the sum of theirs: noted if `note`.
[[nodiscard]] at::Tensor mean_of_shares(Run& run, const std::vector<at::Tensor>& losses,
                                        const std::vector<StepShare>& shares, bool note);

/// Multiplies what the optimizers' parameters have as gradients.
void multiply_gradients(Fit& fit, double factor);

/// Of an open window, for checkpoints. Ranks, if they can be asked, save their mean, as they do of gradients.
void save_loss_weights(const Run& run, State& progress);
void load_loss_weights(Fit& fit, const State& progress);

}  // namespace levin
