// Detects that a replayed step of a GPU does not end because another rank has ended or hangs. c10d's watchdog of NCCL
// watches over collectives that are launched one by one; those within a captured graph it does not see. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/core/Event.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "levin/core/options/units.h"

namespace levin {

class ReplayWatch {
 public:
  /// Ends the process with an error once the device has not finished a replay within `timeout`. `self`: this rank, for
  /// the error.
  ReplayWatch(at::Device device, std::string self, Seconds timeout);
  ~ReplayWatch();
  ReplayWatch(const ReplayWatch&) = delete;
  ReplayWatch& operator=(const ReplayWatch&) = delete;

  /// A replay was launched on the current stream. Does not block.
  void launched();

 private:
  using Clock = std::chrono::steady_clock;
  void watch();
  [[nodiscard]] bool is_overdue() const;

  at::Device device_;
  std::string self_;
  Seconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  c10::Event done_;       // after the oldest replay that had not ended at the last check
  bool is_open_ = false;  // it was recorded, and may not have happened yet
  Clock::time_point since_ = {};
  std::thread thread_;
};

}  // namespace levin
