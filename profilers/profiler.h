// Measures how long the named parts of a run take. Called on the training thread of every rank.
//
// For your own profiler override start() and stop(), and summary() for a report. Close resources in end(), which is
// also called after an error.
#pragma once

#include <cstdint>
#include <string>

#include "levin/core/process/main_guard.h"

namespace levin {

class TimeSplit;

/// The entry point that a profiler is to measure.
struct ProfiledRun {
  std::string stage = "fit";  // fit, validate, test or predict
  std::string log_dir = ".";  // the first logger's folder, or the trainer's
  int64_t rank = 0;
  bool on_gpu = false;
  const TimeSplit* time_split = nullptr;  // of the run; lives as long as the trainer
};

/// The base of profilers. Each rank has its own, used by its training thread.
class Profiler {
 public:
  virtual ~Profiler() = default;

  static const char* registry_name() { return "profiler"; }

  /// Called when a run begins: setup is done, no step has been taken.
  virtual void begin(const ProfiledRun&) {}
  /// Called when the run has ended or failed. An exception from here, stop() or summary() is logged as a warning.
  virtual void end() {}

  /// `action` must outlive the profiler (a string literal). Actions may nest.
  virtual void start(const char* action) = 0;
  virtual void stop(const char* action) = 0;

  /// Returns a report, requested after end().
  [[nodiscard]] virtual std::string summary() const = 0;
};

/// A scope that is measured as one action; does nothing without a profiler.
class ProfilerScope {
 public:
  ProfilerScope(Profiler* profiler, const char* action) : profiler_(profiler), action_(action) {
    if (profiler_ != nullptr) profiler_->start(action_);
  }
  ~ProfilerScope() {
    if (profiler_ == nullptr) return;
    warn_if_it_throws("stop of the profiler", [this] { profiler_->stop(action_); });
  }
  ProfilerScope(const ProfilerScope&) = delete;
  ProfilerScope& operator=(const ProfilerScope&) = delete;

 private:
  Profiler* profiler_;
  const char* action_;
};

}  // namespace levin
