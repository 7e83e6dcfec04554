// Streams, events and captures of the simulated GPUs, with CUDA's rules of what may be captured.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace simulated {

/// Guards all state here. Never held while work runs on a stream's own thread.
[[nodiscard]] std::recursive_mutex& gate();

/// Remembers an error for cudaGetLastError() and returns it. `what`: the call or operator, for the log.
cudaError_t failed(cudaError_t error, const std::string& what);
[[nodiscard]] cudaError_t& last_error();  // of this thread

/// Blocks this thread until then, by now().
void wait_until(double time);
/// Microseconds of a steady clock.
[[nodiscard]] double now();

/// One operation: `run` is what it does to memory, if anything; `us` how long it takes on the GPU.
struct Work {
  std::string name;
  double us = 0;
  std::function<void()> run = nullptr;
};

struct Graph {
  struct Node {
    Work work;
    std::vector<size_t> after;
  };
  std::vector<Node> nodes;

  [[nodiscard]] double us() const;  // of the longest path
  void run() const;
};

class Stream;

struct Capture {
  Stream* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread = {};
  unsigned long long id = 0;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  std::set<Stream*> streams = {};
  bool is_invalid = false;

  /// A call that may not be made while it lasts: no graph comes of it.
  void invalidate(const std::string& by);
};

/// Work in the order in which it is put. It is done at once, or later, on a thread of the stream's own
/// (Settings::own_threads); ready() is when the GPU would be done with it.
class Stream {
 public:
  explicit Stream(bool waits_for_default, int priority) : waits_for_default_(waits_for_default), priority_(priority) {}

  /// Returns the stream of a handle: nullptr is the default stream.
  static Stream& of(cudaStream_t handle);
  static cudaStream_t make(bool waits_for_default, int priority);

  [[nodiscard]] bool waits_for_default() const { return waits_for_default_; }
  [[nodiscard]] int priority() const { return priority_; }
  [[nodiscard]] double ready() const { return ready_; }
  void delay(double until) { ready_ = until > ready_ ? until : ready_; }

  void put(const Work& work);
  [[nodiscard]] long put_so_far();
  [[nodiscard]] bool has_done(long number);
  void wait_for(long number);  // blocks this thread

  std::shared_ptr<Capture> capture = nullptr;
  std::set<size_t> tips = {};  // of the capture's graph: what later work comes after

 private:
  void work();

  const bool waits_for_default_;
  const int priority_;
  double ready_ = 0;
  bool has_thread_ = false;
  long put_ = 0, done_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
};

struct Event {
  bool has_times = true;
  bool is_recorded = false;
  double time = 0;
  Stream* stream = nullptr;
  long number = 0;  // of the stream's work
  std::shared_ptr<Capture> capture = nullptr;
  std::set<size_t> tips = {};
};

[[nodiscard]] std::set<Stream*>& all_streams();
[[nodiscard]] std::set<std::shared_ptr<Capture>>& open_captures();
/// This thread's capture mode: see cudaThreadExchangeStreamCaptureMode.
[[nodiscard]] cudaStreamCaptureMode& thread_mode();

/// Puts work into a stream, or into the capture that it takes part in.
cudaError_t enqueue(cudaStream_t stream, const Work& work);
/// Blocks until the stream's work so far is done; an error in a capture.
cudaError_t synchronize(Stream& stream, const std::string& call);
void wait_for_all_streams();
/// An error while a capture forbids calls like `call`.
cudaError_t refuse_in_capture(const std::string& call);
/// An error for a call on the default stream, which waits for a stream that is captured.
cudaError_t refuse_default_stream(const Stream& stream, const std::string& call);
[[nodiscard]] bool is_capturing(cudaStream_t stream);

}  // namespace simulated
