// Between a run and its loggers: a bounded queue, and the thread that passes everything on in order.
//
// Note [What logging costs a step]
// The training thread moves a row into the queue under an uncontended lock and wakes no thread. The stream's thread
// looks every 50 ms, or when the queue has become long; it does the formatting, compression, files and databases. If a
// disk does not answer until the queue is full, further values are dropped, counted and reported: training is never
// delayed. Loggers that talk to servers have queues of their own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "levin/loggers/logger.h"

namespace levin {

/// Used by one thread, the training thread of rank 0. The exception of a logger is rethrown by the next call of that
/// thread.
class LogStream {
 public:
  /// The call that hands a value to one logger.
  using Handing = std::function<void(Logger&, const LogPoint&)>;

  /// `capacity`: bytes that the queue may hold, roughly.
  explicit LogStream(std::vector<std::shared_ptr<Logger>> loggers, size_t capacity = size_t{256} << 20);
  /// Waits until everything has reached the loggers. Exceptions are printed.
  ~LogStream();
  LogStream(const LogStream&) = delete;
  LogStream& operator=(const LogStream&) = delete;

  /// Logs one row of scalars with the current time.
  void log_metrics(MetricRow row, int64_t step);
  /// Logs a value of a different kind with every logger that takes it. `bytes`: the memory it holds in the queue.
  void log(LogKind kind, int64_t step, size_t bytes, Handing hand);
  /// Logs measurements of the machine: by log_system of loggers that take them, by log_metrics of the others.
  void log_system(MetricList measurements, int64_t step);
  /// Does something with every logger after what was logged before, e.g. save(). Never dropped.
  void each(std::function<void(Logger&)> call);
  /// Runs `task` on the stream's thread after what was logged before. Never dropped.
  void then(std::function<void()> task);

  /// Waits until the queue is empty; until the next call the training thread may use the loggers itself.
  void drain();

  /// Returns true if some logger takes this kind.
  [[nodiscard]] bool takes(LogKind kind) const;
  /// Returns the number of values dropped because the queue was full.
  [[nodiscard]] int64_t dropped() const;

 private:
  struct Event {
    LogPoint at = {};
    size_t bytes = 0;
    MetricRow row = {};  // scalars, if nothing else is set
    Handing hand = {};   // called with each logger
    std::function<void()> task = {};
  };

  void push(Event event, bool droppable);
  void work();
  void handle(const Event& event);
  void make_list(const MetricRow& row);
  /// Keeps the first exception of such calls for the training thread; returns false if `call` has thrown.
  template <class Call>
  bool guarded(const Call& call);
  void rethrow(std::unique_lock<std::mutex>& lock);

  std::vector<std::shared_ptr<Logger>> loggers_;
  size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable wake_ = {};  // of the thread
  std::condition_variable idle_ = {};  // of drain()
  std::vector<Event> queue_ = {};
  size_t queued_bytes_ = 0;
  bool working_ = false;  // the thread handles events that it has taken from the queue
  bool wanted_ = false;   // somebody waits for it
  bool ending_ = false;
  int64_t dropped_ = 0;
  std::exception_ptr failure_ = nullptr;
  // Of the thread: the last row as a list, whose names stay for the next.
  std::shared_ptr<const std::vector<std::string>> names_ = nullptr;
  MetricList list_ = {};
  std::thread thread_;  // last: it uses the others
};

}  // namespace levin
