// Backward of several replicas at the same time on CPUs. LibTorch's engine runs the CPU part of a graph on the thread
// that called backward, whereas each GPU has a thread.
//
//   replicas->refresh_leaves(count);                                       // each copy begins a separate graph
//   apply(count, [&](size_t k) { losses[k] = …; });
//   losses = with_parallel_backward(replicas, parallel, losses);
//   mean_loss(losses, sizes, slot).backward();                             // the replicas' parts in parallel
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "levin/strategies/device/parallel_apply.h"
#include "levin/strategies/device/replicas.h"

namespace levin {

/// Whether several replicas, all on CPU slots, have parameters to train, and gradients are enabled.
[[nodiscard]] bool can_run_backward_in_parallel(const Replicas& replicas, const ParallelApply& parallel, size_t count);

/// `losses[k]` is the loss of replica k, whose copies were made by refresh_leaves(). Returns the same values in a graph
/// that runs the replicas' graphs on their slots' threads. The gradient of each of the module's parameters is g0 + (g1
/// + g2 + …), as without this function, and is accumulated once: hooks see the sum. Backward throws Error naming the
/// replica and its slot; with create_graph it throws, because the gradients' graph would lack the operations of the
/// replicas' graphs.
[[nodiscard]] std::vector<at::Tensor> with_parallel_backward(std::shared_ptr<Replicas> replicas,
                                                             std::shared_ptr<ParallelApply> parallel,
                                                             std::vector<at::Tensor> losses);

}  // namespace levin
