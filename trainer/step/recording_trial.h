// record_steps: auto: whether replaying steps is faster than running them, found out by doing both in turn.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace levin {

class RecordingTrial {
 public:
  /// Whether the next accumulation window is to be replayed; otherwise it is to run as it is.
  [[nodiscard]] bool replays_next() const { return windows_ % 2 == 0; }
  /// The window that replays_next() was asked for took so many seconds.
  void add(double seconds);

  [[nodiscard]] bool is_over() const { return windows_ == kWindows; }
  /// Whether replays are faster by more than noise. Only if is_over().
  [[nodiscard]] bool pays() const { return fastest_[1] < kWorth * fastest_[0]; }
  /// "31 us instead of 75 us".
  [[nodiscard]] std::string text() const;

 private:
  static constexpr int64_t kWindows = 16;
  static constexpr double kWorth = 0.95;

  int64_t windows_ = 0;
  std::array<double, 2> fastest_ = {-1, -1};  // as it is, replayed; seconds
};

}  // namespace levin
