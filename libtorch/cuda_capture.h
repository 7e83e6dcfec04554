// CUDA graphs whose capture may fail, and the state that LibTorch keeps for them; the CUDA allocator's hook. For cuda/
// alone. Internal.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>

#include "levin/libtorch/version.h"

namespace levin {

/// Has the thread whose allocation has failed call an observer.
using c10::cuda::CUDACachingAllocator::attachOutOfMemoryObserver;

using GraphPool = decltype(at::cuda::graph_pool_handle());

class CapturedGraph final : public at::cuda::CUDAGraph {
 public:
  /// Ends a capture that has failed; its error is known already. If CUDA refuses to make a graph of it, capture_end()
  /// throws before it has told the allocators and the generators that the capture is over. They would remain in it: no
  /// block that another stream has used would be reused, random numbers outside of a capture would be an error, and the
  /// allocator would ask a graph that no longer exists.
  void abandon() { abandon(*this); }

 private:
  // Runs one action of a clean-up, whether or not the others succeed.
  template <class Action>
  static void attempt(Action action) {
    try {
      action();
    } catch (const c10::Error&) {
    }
  }

  // LibTorch up to 2.7 has no flag for a capture that ended.
  template <class Graph>
  static bool has_ended(const Graph& graph) {
    if constexpr (requires { graph.capture_ended_; }) {
      return graph.capture_ended_;
    } else {
      return graph.has_graph_ || graph.has_graph_exec_;
    }
  }

  template <class Graph>
  static void abandon(Graph& graph) {
    attempt([&] { graph.capture_end(); });
    // The destructor does the rest; since 2.15 also after a capture that failed.
    static_assert(
        !LEVIN_TORCH_AT_LEAST(2, 15) || requires { graph.allocated_pool_; },
        "This LibTorch has changed how a failed capture is undone: adapt libtorch/cuda_capture.h.");
    if constexpr (requires { graph.allocated_pool_; }) return;
    if (has_ended(graph)) return;
    attempt([&] {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(graph.capture_dev_, graph.mempool_id_);
      c10::cuda::CUDACachingAllocator::releasePool(graph.capture_dev_, graph.mempool_id_);
    });
    release_host_pool(graph.mempool_id_);
    for (auto& [state, increment] : graph.captured_generator_states_) leave_capture(*state);
  }

#if LEVIN_TORCH_AT_LEAST(2, 9)
  // LibTorch 2.9 has no pools of pinned memory.
  template <class Pool, class Allocator = at::HostAllocator>
  static void release_host_pool(const Pool& pool) {
    if constexpr (requires(Allocator & allocator) { allocator.release_pool(pool); }) {
      attempt([&] {
        Allocator& allocator = *at::getHostAllocator(at::kCUDA);
        allocator.end_allocate_to_pool(pool);
        allocator.release_pool(pool);
      });
    }
  }
#else
  static void release_host_pool(const GraphPool& /*pool*/) {}
#endif

  // Generators have one flag up to LibTorch 2.11, later a state for each capture, which the graph's destructor removes.
  template <class State>
  static void leave_capture(State& state) {
    if constexpr (requires { state.capturing_; }) {
      state.capturing_ = false;
    } else {
      static_assert(
          requires { state.capture_states_; },
          "This LibTorch has changed the generators' state in a capture: adapt libtorch/cuda_capture.h.");
    }
  }
};

}  // namespace levin
