#include "levin/cuda/recorder.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>

#include <utility>

namespace levin {

namespace {

// Runs one action of a clean-up, whether or not the others succeed.
template <class Action>
void attempt(Action action) {
  try {
    action();
  } catch (const c10::Error&) {
  }
}

class Graph final : public at::cuda::CUDAGraph {
 public:
  // Ends a capture that has failed; its error is known already. If CUDA refuses to make a graph of it, capture_end()
  // throws before it has told the allocators and the generators that the capture is over. They would remain in it: no
  // block that another stream has used would be reused, random numbers outside of a capture would be an error, and the
  // allocator would ask a graph that no longer exists.
  void abandon() {
    attempt([this] { capture_end(); });
    if (capture_ended_) return;  // the destructor does the rest
    using namespace c10::cuda::CUDACachingAllocator;
    attempt([this] {
      endAllocateToPool(capture_dev_, mempool_id_);
      releasePool(capture_dev_, mempool_id_);
    });
    attempt([this] {
      at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(mempool_id_);
      at::getHostAllocator(at::kCUDA)->release_pool(mempool_id_);
    });
    for (auto& [state, increment] : captured_generator_states_) state->capturing_ = false;
  }
};

class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(std::shared_ptr<const c10::MempoolId_t> memory) : pool(std::move(memory)) {}
  void replay() override { graph.replay(); }

  std::shared_ptr<const c10::MempoolId_t> pool;
  Graph graph;
};

// Subsequent work of `later` waits for the work of `earlier` so far.
void order(const c10::cuda::CUDAStream& earlier, const c10::cuda::CUDAStream& later) {
  at::cuda::CUDAEvent done;
  done.record(earlier);
  done.block(later);
}

}  // namespace

CudaRecorder::CudaRecorder(at::Device device)
    : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

// The pool of the graphs that exist. Once all have been destroyed, the allocator refuses further captures into it.
std::shared_ptr<const CudaRecorder::Pool> CudaRecorder::pool() {
  auto shared = pool_.lock();
  if (shared == nullptr) pool_ = shared = std::make_shared<const Pool>(at::cuda::graph_pool_handle());
  return shared;
}

void CudaRecorder::warm_up(const std::function<void()>& step) {
  const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(stream_.device_index());
  order(current, stream_);
  {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    step();
  }
  order(stream_, current);
}

// Thread-local: loaders' threads continue to pin memory, which a capture in global mode forbids in the entire process.
// During a capture the allocator cannot give back what it keeps for other streams and graphs, so that is done before,
// as by Python's torch.cuda.graph. What LibTorch still runs on the stream before it captures (it sets the seed and the
// offset that captured random numbers start from) must not come after the copies of the first replay, on another
// stream.
std::unique_ptr<Recording> CudaRecorder::record(const std::function<void()>& step) {
  c10::cuda::device_synchronize();
  c10::cuda::CUDACachingAllocator::emptyCache();
  auto recording = std::make_unique<CudaRecording>(pool());
  const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(stream_.device_index());
  const c10::cuda::CUDAStreamGuard guard(stream_);
  try {
    recording->graph.capture_begin(*recording->pool, cudaStreamCaptureModeThreadLocal);
    step();
    recording->graph.capture_end();
  } catch (...) {
    recording->graph.abandon();
    throw;
  }
  order(stream_, current);
  return recording;
}

}  // namespace levin
