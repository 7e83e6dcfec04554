// CUDA's runtime: streams and events.
#include <algorithm>

#include "report.h"
#include "settings.h"
#include "stream.h"

using namespace simulated;

namespace {

Event& event_of(cudaEvent_t handle) {
  return *reinterpret_cast<Event*>(handle);
}

// A stream that joins a capture, or one that waits within it.
cudaError_t wait_in_capture(Stream& stream, const Event& event) {
  if (open_captures().count(event.capture) == 0) return failed(cudaErrorCapturedEvent, "cudaStreamWaitEvent");
  if (&stream == &Stream::of(nullptr)) {
    event.capture->invalidate("the default stream waits for what is captured");
    return failed(cudaErrorStreamCaptureUnsupported, "cudaStreamWaitEvent");
  }
  if (stream.capture != nullptr && stream.capture != event.capture) {
    stream.capture->invalidate("cudaStreamWaitEvent");
    event.capture->invalidate("cudaStreamWaitEvent");
    return failed(cudaErrorStreamCaptureMerge, "cudaStreamWaitEvent");
  }
  if (stream.capture == nullptr) {
    stream.capture = event.capture;
    stream.tips.clear();
    event.capture->streams.insert(&stream);
  }
  stream.tips.insert(event.tips.begin(), event.tips.end());
  return cudaSuccess;
}

bool is_done(const Event& event) {
  if (!event.is_recorded) return true;
  return event.time <= now() && (!settings().own_threads || event.stream->has_done(event.number));
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  *stream = Stream::make((flags & cudaStreamNonBlocking) == 0, priority);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(gate());
  all_streams().erase(&Stream::of(stream));
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = Stream::of(stream).priority();
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  count("waits: cudaStreamSynchronize");
  if (!is_capturing(stream)) {
    if (const cudaError_t refusal = refuse_in_capture("cudaStreamSynchronize")) return refusal;
  }
  return synchronize(Stream::of(stream), "cudaStreamSynchronize");
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const std::lock_guard lock(gate());
  Stream& stream = Stream::of(handle);
  if (stream.capture != nullptr) {
    stream.capture->invalidate("cudaStreamQuery");
    return failed(cudaErrorStreamCaptureUnsupported, "cudaStreamQuery");
  }
  const bool done = stream.ready() <= now() && (!settings().own_threads || stream.has_done(stream.put_so_far()));
  return done ? cudaSuccess : failed(cudaErrorNotReady, "cudaStreamQuery");
}

cudaError_t cudaDeviceSynchronize() {
  count("waits: cudaDeviceSynchronize");
  {
    const std::lock_guard lock(gate());
    for (const auto& capture : open_captures()) capture->invalidate("cudaDeviceSynchronize");
    if (!open_captures().empty()) return failed(cudaErrorStreamCaptureUnsupported, "cudaDeviceSynchronize");
  }
  wait_for_all_streams();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  const std::lock_guard lock(gate());
  Stream& stream = Stream::of(handle);
  const Event& event = event_of(event_handle);
  if (!event.is_recorded) return cudaSuccess;
  if (event.capture != nullptr) return wait_in_capture(stream, event);
  if (stream.capture != nullptr) {
    stream.capture->invalidate("waiting for what is not captured");
    return failed(cudaErrorStreamCaptureIsolation, "cudaStreamWaitEvent");
  }
  stream.delay(event.time);
  if (settings().own_threads && event.stream != &stream) {
    stream.put({"wait", 0, [of = event.stream, number = event.number] { of->wait_for(number); }});
  }
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned) {
  if (is_capturing(stream)) return failed(cudaErrorStreamCaptureUnsupported, "cudaStreamAddCallback");
  return enqueue(stream, {"callback", 1, [=] { callback(stream, cudaSuccess, data); }});
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return enqueue(stream, {"host function", 1, [=] { function(data); }});
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = reinterpret_cast<cudaEvent_t>(new Event{.has_times = (flags & cudaEventDisableTiming) == 0});
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(gate());
  delete &event_of(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  const std::lock_guard lock(gate());
  Event& event = event_of(handle);
  Stream& stream = Stream::of(stream_handle);
  if (const cudaError_t refusal = refuse_default_stream(stream, "cudaEventRecord")) return refusal;
  event.is_recorded = true;
  event.capture = stream.capture;
  event.tips = stream.tips;
  if (stream.capture != nullptr) return cudaSuccess;
  event.stream = &stream;
  event.number = stream.put_so_far();
  event.time = std::max(now(), stream.ready());
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  count("cudaEventQuery");
  if (const cudaError_t refusal = refuse_in_capture("cudaEventQuery")) return refusal;
  const std::lock_guard lock(gate());
  const Event& event = event_of(handle);
  if (event.capture != nullptr) return failed(cudaErrorCapturedEvent, "cudaEventQuery");
  return is_done(event) ? cudaSuccess : failed(cudaErrorNotReady, "cudaEventQuery");
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  count("waits: cudaEventSynchronize");
  if (const cudaError_t refusal = refuse_in_capture("cudaEventSynchronize")) return refusal;
  Event event;
  {
    const std::lock_guard lock(gate());
    event = event_of(handle);
  }
  if (event.capture != nullptr) return failed(cudaErrorCapturedEvent, "cudaEventSynchronize");
  if (!event.is_recorded) return cudaSuccess;
  if (settings().own_threads) event.stream->wait_for(event.number);
  wait_until(event.time);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(gate());
  const Event &first = event_of(begin), &last = event_of(end);
  if (!first.has_times || !last.has_times || !first.is_recorded || !last.is_recorded) {
    return failed(cudaErrorInvalidResourceHandle, "cudaEventElapsedTime");
  }
  if (!is_done(last)) return failed(cudaErrorNotReady, "cudaEventElapsedTime");
  *milliseconds = static_cast<float>((last.time - first.time) / 1000);
  return cudaSuccess;
}

}  // extern "C"
