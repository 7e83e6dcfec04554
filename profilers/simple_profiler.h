// Counts the named parts of a run and adds up their times: trainer: {profiler: simple}. Its summary ends with the split
// of a training step (time_split.h).
//
// A pair of start and stop costs about two clock readings. Training thread only.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "levin/profilers/profiler.h"

namespace levin {

/// A profiler that reports the count, mean and total time of each action.
class SimpleProfiler final : public Profiler {
 public:
  SimpleProfiler();

  void begin(const ProfiledRun& run) override { time_split_ = run.time_split; }
  void end() override;
  void start(const char* action) override;
  /// Ends the innermost running `action`, and what was started in it and not stopped; nothing if it does not run.
  void stop(const char* action) override;

  /// Actions by total time, with their share of the time since the first start. Nested actions count in full in each.
  [[nodiscard]] std::string summary() const override;

  /// The measurements of one action.
  struct Action {
    std::string name;
    int64_t calls = 0;
    double mean = 0;   // seconds
    double total = 0;  // seconds
  };
  /// Returns what has been measured so far, by total time.
  [[nodiscard]] std::vector<Action> actions() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Slot {
    const char* action;
    int64_t calls = 0;
    Clock::duration total = Clock::duration::zero();
  };
  struct Open {
    size_t slot;
    Clock::time_point since;
  };

  size_t slot_of(const char* action);

  std::vector<Slot> slots_ = {};  // one per literal; few, so linear search is fast
  std::vector<Open> open_ = {};
  Clock::time_point first_ = {};
  Clock::time_point last_ = {};
  const TimeSplit* time_split_ = nullptr;  // of the run in progress
  std::string steps_ = "";                 // the split of the last run
};

}  // namespace levin
