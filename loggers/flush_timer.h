// Calls a function on its own thread after a delay: for loggers whose values must reach the disk even if nothing more
// is logged.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "levin/core/options/units.h"

namespace levin {

/// A thread that calls a function after a delay. Thread-safe.
class FlushTimer {
 public:
  /// `body` must not throw. It may call arm().
  explicit FlushTimer(std::function<void()> body) : body_(std::move(body)) {}
  ~FlushTimer() { stop(); }
  FlushTimer(const FlushTimer&) = delete;
  FlushTimer& operator=(const FlushTimer&) = delete;

  /// Calls the body after this time, unless an earlier call is due.
  void arm(Seconds delay);
  /// Waits for a call in progress; no further call follows until arm().
  void stop();

 private:
  void run();

  std::function<void()> body_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::chrono::steady_clock::time_point> due_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace levin
