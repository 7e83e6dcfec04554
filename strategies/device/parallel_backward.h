// Backward of several replicas at the same time on CPUs. LibTorch's engine runs the part of a graph that is on the CPU
// on the thread that called backward, and on GPUs has a thread for each.
//
//   replicas->refresh_leaves(count);                                       // each copy begins a graph of its own
//   apply(count, [&](size_t k) { losses[k] = …; });
//   losses = with_parallel_backward(replicas, parallel, losses);
//   mean_loss(losses, sizes, slot).backward();                             // the replicas' parts side by side
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "levin/strategies/device/parallel_apply.h"
#include "levin/strategies/device/replicas.h"

namespace levin {

/// Whether there is something to train by several replicas, all of them on CPU slots, and gradients are on.
[[nodiscard]] bool can_run_backward_in_parallel(const Replicas& replicas, const ParallelApply& parallel, size_t count);

/// `losses[k]`, of replica k, whose copies were made by refresh_leaves(): the same values, of a graph that runs the
/// replicas' own on their slots' threads. The gradient of each of the module's parameters is g0 + (g1 + g2 + …), as
/// without this, and arrives at it once: its hooks see the sum. Backward throws Error naming the replica and its slot;
/// with create_graph it throws, because what the replicas' graphs compute would be missing in the gradients' graph.
[[nodiscard]] std::vector<at::Tensor> with_parallel_backward(std::shared_ptr<Replicas> replicas,
                                                             std::shared_ptr<ParallelApply> parallel,
                                                             std::vector<at::Tensor> losses);

}  // namespace levin
