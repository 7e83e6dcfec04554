// Runs a step of an optimizer that evaluates its batch several times (LBFGS).
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

#include "levin/data/batch.h"

namespace levin {

class RankCollectives;
struct StepCore;

/// Runs a step of automatic optimization, with one pass for each evaluation. Returns the first loss, detached.
/// `skipped`: this rank has nothing to compute. TrainerOptions::nonfinite_loss applies to the loss and the gradients of
/// every evaluation, except to a loss at a trial point of a line search. A step that is given up or fails restores the
/// parameters. Every rank calls it.
[[nodiscard]] at::Tensor step_with_closure(StepCore& core, const Batch& batch, int64_t batch_idx, bool skipped);

/// Returns the mean of the ranks' losses, so that all of them search along the same line; gradients are means too. A
/// rank without a loss (undefined) counts as 0, and so do its gradients. Undefined if no rank has a loss. Every rank
/// calls it.
[[nodiscard]] at::Tensor loss_of_ranks(RankCollectives& ranks, const at::Tensor& loss);

}  // namespace levin
