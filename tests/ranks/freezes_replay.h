// A profiler that stops its process where a recorded step is about to be replayed: later than anything that ranks tell
// each other on their hosts.
#pragma once

#include <csignal>
#include <cstdlib>
#include <string>

#include "levin/profilers/profiler.h"

namespace levin::test {

/// `when`: "rank:step".
class FreezesReplay final : public Profiler {
 public:
  explicit FreezesReplay(const std::string& when)
      : rank_(std::stoll(when)), steps_left_(std::stoll(when.substr(when.find(':') + 1))) {}

  void start(const char* action) override {
    if (std::string(action) != "recorded_step" || std::atoll(std::getenv("RANK")) != rank_) return;
    if (steps_left_-- == 0) std::raise(SIGSTOP);
  }
  void stop(const char*) override {}
  [[nodiscard]] std::string summary() const override { return ""; }

 private:
  int64_t rank_;
  int64_t steps_left_;  // that are replayed
};

}  // namespace levin::test
