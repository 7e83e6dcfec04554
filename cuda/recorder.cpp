#include "levin/cuda/recorder.h"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <exception>

namespace levin {

namespace {

class CudaRecording final : public Recording {
 public:
  void replay() override { graph.replay(); }
  at::cuda::CUDAGraph graph;
};

// Subsequent work of `later` waits for the work of `earlier` so far.
void order(const c10::cuda::CUDAStream& earlier, const c10::cuda::CUDAStream& later) {
  at::cuda::CUDAEvent done;
  done.record(earlier);
  done.block(later);
}

// A failed capture must be ended nevertheless, or its stream stays unusable; its error is known already.
void abandon(at::cuda::CUDAGraph& graph) {
  try {
    graph.capture_end();
  } catch (const std::exception&) {
  }
}

}  // namespace

CudaRecorder::CudaRecorder(at::Device device)
    : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())),
      pool_(at::cuda::graph_pool_handle()) {}

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
std::unique_ptr<Recording> CudaRecorder::record(const std::function<void()>& step) {
  c10::cuda::device_synchronize();
  auto recording = std::make_unique<CudaRecording>();
  const c10::cuda::CUDAStreamGuard guard(stream_);
  recording->graph.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
  try {
    step();
  } catch (...) {
    abandon(recording->graph);
    throw;
  }
  recording->graph.capture_end();
  return recording;
}

}  // namespace levin
