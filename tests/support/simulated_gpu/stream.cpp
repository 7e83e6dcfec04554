#include "stream.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "report.h"
#include "settings.h"

namespace simulated {

void wait_until(double time) {
  for (double left = time - now(); left > 0; left = time - now()) {
    if (left > 200) ::usleep(static_cast<useconds_t>(left - 100));
  }
}

std::recursive_mutex& gate() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

cudaError_t& last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

cudaError_t failed(cudaError_t error, const std::string& what) {
  last_error() = error;
  if (error != cudaErrorNotReady) std::fprintf(stderr, "simulated GPU: %s: CUDA error %d\n", what.c_str(), error);
  return error;
}

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(time).count();
}

double Graph::us() const {
  std::vector<double> ends;
  double last = 0;
  for (const Node& node : nodes) {
    double begin = 0;
    for (const size_t before : node.after) begin = std::max(begin, ends[before]);
    ends.push_back(begin + node.work.us);
    last = std::max(last, ends.back());
  }
  return last;
}

void Graph::run() const {
  for (const Node& node : nodes) {
    if (node.work.run) node.work.run();
  }
}

void Capture::invalidate(const std::string& by) {
  if (!is_invalid) std::fprintf(stderr, "simulated GPU: %s ends a capture\n", by.c_str());
  is_invalid = true;
}

std::set<Stream*>& all_streams() {
  static auto* streams = new std::set<Stream*>;
  return *streams;
}

std::set<std::shared_ptr<Capture>>& open_captures() {
  static auto* captures = new std::set<std::shared_ptr<Capture>>;
  return *captures;
}

cudaStreamCaptureMode& thread_mode() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

Stream& Stream::of(cudaStream_t handle) {
  static cudaStream_t first = make(/*waits_for_default=*/true, 0);
  const bool is_default = handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
  return *reinterpret_cast<Stream*>(is_default ? first : handle);
}

// Never destroyed: its thread may be at work, and LibTorch keeps its streams until the end of the process.
cudaStream_t Stream::make(bool waits_for_default, int priority) {
  const std::lock_guard lock(gate());
  auto* stream = new Stream(waits_for_default, priority);
  all_streams().insert(stream);
  return reinterpret_cast<cudaStream_t>(stream);
}

void Stream::put(const Work& work) {
  const double end = std::max(now(), ready_) + work.us;
  ready_ = end;
  if (!settings().own_threads) {
    if (work.run) work.run();
    return;
  }
  const std::lock_guard lock(mutex_);
  queue_.push_back([run = work.run, end] {
    if (run) run();
    wait_until(end);
  });
  ++put_;
  if (!std::exchange(has_thread_, true)) std::thread([this] { this->work(); }).detach();
  changed_.notify_all();
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !queue_.empty(); });
    const std::function<void()> next = std::move(queue_.front());
    lock.unlock();
    next();
    lock.lock();
    queue_.pop_front();
    ++done_;
    changed_.notify_all();
  }
}

long Stream::put_so_far() {
  const std::lock_guard lock(mutex_);
  return put_;
}

bool Stream::has_done(long number) {
  const std::lock_guard lock(mutex_);
  return done_ >= number;
}

void Stream::wait_for(long number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number; });
}

cudaError_t refuse_in_capture(const std::string& call) {
  const std::lock_guard lock(gate());
  if (thread_mode() == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  for (const auto& capture : open_captures()) {
    const bool is_own = capture->thread == std::this_thread::get_id();
    const bool forbids = capture->mode == cudaStreamCaptureModeGlobal
                             ? is_own || thread_mode() == cudaStreamCaptureModeGlobal
                             : is_own && capture->mode == cudaStreamCaptureModeThreadLocal;
    if (!forbids) continue;
    capture->invalidate(call);
    return failed(cudaErrorStreamCaptureUnsupported, call);
  }
  return cudaSuccess;
}

cudaError_t refuse_default_stream(const Stream& stream, const std::string& call) {
  if (&stream != &Stream::of(nullptr)) return cudaSuccess;
  for (const auto& capture : open_captures()) {
    if (!capture->origin->waits_for_default()) continue;
    capture->invalidate(call);
    return failed(cudaErrorStreamCaptureImplicit, call);
  }
  return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t handle, const Work& work) {
  const std::lock_guard lock(gate());
  Stream& stream = Stream::of(handle);
  if (const cudaError_t refusal = refuse_default_stream(stream, work.name)) return refusal;
  if (stream.capture == nullptr) {
    count(work.name);
    stream.put(work);
    return cudaSuccess;
  }
  Capture& capture = *stream.capture;
  if (capture.is_invalid) return failed(cudaErrorStreamCaptureInvalidated, work.name);
  capture.graph->nodes.push_back({work, {stream.tips.begin(), stream.tips.end()}});
  stream.tips = {capture.graph->nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t synchronize(Stream& stream, const std::string& call) {
  double time = 0;
  {
    const std::lock_guard lock(gate());
    if (stream.capture != nullptr) {
      stream.capture->invalidate(call);
      return failed(cudaErrorStreamCaptureUnsupported, call);
    }
    time = stream.ready();
  }
  if (settings().own_threads) stream.wait_for(stream.put_so_far());
  wait_until(time);
  return cudaSuccess;
}

void wait_for_all_streams() {
  std::vector<Stream*> streams;
  double time = 0;
  {
    const std::lock_guard lock(gate());
    for (Stream* stream : all_streams()) {
      streams.push_back(stream);
      time = std::max(time, stream->ready());
    }
  }
  if (settings().own_threads) {
    for (Stream* stream : streams) stream->wait_for(stream->put_so_far());
  }
  wait_until(time);
}

bool is_capturing(cudaStream_t stream) {
  const std::lock_guard lock(gate());
  return Stream::of(stream).capture != nullptr;
}

}  // namespace simulated
