// Measures how long the named parts of a run take. Called on the training thread.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

class Profiler {
 public:
  virtual ~Profiler() = default;

  static const char* registry_name() { return "profiler"; }

  /// `action` must outlive the profiler (a string literal). Actions may nest.
  virtual void start(const char* action) = 0;
  virtual void stop(const char* action) = 0;

  /// A table for people.
  [[nodiscard]] virtual std::string summary() const = 0;
};

/// Measures one action while it lives; does nothing without a profiler.
class ProfilerScope {
 public:
  ProfilerScope(Profiler* profiler, const char* action) : profiler_(profiler), action_(action) {
    if (profiler_ != nullptr) profiler_->start(action_);
  }
  ~ProfilerScope() {
    if (profiler_ != nullptr) profiler_->stop(action_);
  }
  ProfilerScope(const ProfilerScope&) = delete;
  ProfilerScope& operator=(const ProfilerScope&) = delete;

 private:
  Profiler* profiler_;
  const char* action_;
};

}  // namespace levin
