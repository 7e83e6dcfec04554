// CUDA's runtime: captures and graphs.
#include <algorithm>
#include <vector>

#include "report.h"
#include "stream.h"

using namespace simulated;

namespace {

using SharedGraph = std::shared_ptr<Graph>;

struct Executable {
  SharedGraph graph;
  double us = 0;
};

SharedGraph& graph_of(cudaGraph_t handle) {
  return *reinterpret_cast<SharedGraph*>(handle);
}

// Whether all of a capture's work comes before the end of the stream that began it.
bool is_joined(const Capture& capture) {
  std::set<size_t> seen;
  std::vector<size_t> next(capture.origin->tips.begin(), capture.origin->tips.end());
  while (!next.empty()) {
    const size_t node = next.back();
    next.pop_back();
    if (!seen.insert(node).second) continue;
    const auto& before = capture.graph->nodes[node].after;
    next.insert(next.end(), before.begin(), before.end());
  }
  return seen.size() == capture.graph->nodes.size();
}

}  // namespace

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode());
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(gate());
  Stream& stream = Stream::of(handle);
  if (&stream == &Stream::of(nullptr)) return failed(cudaErrorStreamCaptureUnsupported, "cudaStreamBeginCapture");
  if (stream.capture != nullptr) return failed(cudaErrorIllegalState, "cudaStreamBeginCapture");
  count("captures");
  static unsigned long long captures = 0;
  stream.capture = std::make_shared<Capture>(Capture{
      .origin = &stream, .mode = mode, .thread = std::this_thread::get_id(), .id = ++captures, .streams = {&stream}});
  stream.tips.clear();
  open_captures().insert(stream.capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const std::lock_guard lock(gate());
  *graph = nullptr;
  Stream& stream = Stream::of(handle);
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return failed(cudaErrorIllegalState, "cudaStreamEndCapture");
  if (capture->origin != &stream) {
    capture->invalidate("cudaStreamEndCapture on another stream");
    return failed(cudaErrorStreamCaptureUnmatched, "cudaStreamEndCapture");
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    capture->invalidate("cudaStreamEndCapture on another thread");
    return failed(cudaErrorStreamCaptureWrongThread, "cudaStreamEndCapture");
  }
  const bool joined = is_joined(*capture);
  for (Stream* part : capture->streams) {
    part->capture.reset();
    part->tips.clear();
  }
  open_captures().erase(capture);
  if (capture->is_invalid) return failed(cudaErrorStreamCaptureInvalidated, "cudaStreamEndCapture");
  if (!joined) return failed(cudaErrorStreamCaptureUnjoined, "cudaStreamEndCapture");
  *graph = reinterpret_cast<cudaGraph_t>(new SharedGraph(capture->graph));
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(gate());
  const Stream& stream = Stream::of(handle);
  if (const cudaError_t refusal = refuse_default_stream(stream, "cudaStreamIsCapturing")) return refusal;
  *status = cudaStreamCaptureStatusNone;
  if (stream.capture != nullptr) {
    *status = stream.capture->is_invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  }
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** after, const cudaGraphEdgeData** edges,
                                     size_t* count_after) {
  const std::lock_guard lock(gate());
  if (const cudaError_t error = cudaStreamIsCapturing(handle, status)) return error;
  Stream& stream = Stream::of(handle);
  if (stream.capture == nullptr) return cudaSuccess;
  if (id != nullptr) *id = stream.capture->id;
  if (graph != nullptr) *graph = reinterpret_cast<cudaGraph_t>(&stream.capture->graph);
  if (after != nullptr) *after = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count_after != nullptr) *count_after = 0;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  const SharedGraph& whole = graph_of(graph);
  count("nodes of graphs", static_cast<long>(whole->nodes.size()));
  *executable = reinterpret_cast<cudaGraphExec_t>(new Executable{whole, whole->us()});
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  const auto& executable = *reinterpret_cast<Executable*>(handle);
  return enqueue(stream, {"graph", executable.us, [graph = executable.graph] { graph->run(); }});
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (graph != nullptr) delete &graph_of(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<Executable*>(executable);
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* nodes) {
  *nodes = graph_of(graph)->nodes.size();
  return cudaSuccess;
}

}  // extern "C"
