#include "levin/cuda/recorder.h"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <utility>

namespace levin {

namespace {

class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(std::shared_ptr<const GraphPool> memory) : pool(std::move(memory)) {}
  void replay() override { graph.replay(); }

  std::shared_ptr<const GraphPool> pool;
  CapturedGraph graph;
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
std::shared_ptr<const GraphPool> CudaRecorder::pool() {
  auto shared = pool_.lock();
  if (shared == nullptr) pool_ = shared = std::make_shared<const GraphPool>(at::cuda::graph_pool_handle());
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
