// Calls a function on a thread of its own some time after it was asked to: for loggers whose values must reach the disk
// although nothing more is logged.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "levin/core/duration.h"

namespace levin {

class FlushTimer {
 public:
  /// `body` must not throw. It may call arm().
  explicit FlushTimer(std::function<void()> body) : body_(std::move(body)) {}
  ~FlushTimer() { stop(); }
  FlushTimer(const FlushTimer&) = delete;
  FlushTimer& operator=(const FlushTimer&) = delete;

  /// Calls the body after this time, unless it is to be called earlier anyway.
  void arm(Seconds delay);
  /// Waits for a call under way; there is none afterwards, until arm().
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
