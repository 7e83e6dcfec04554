// Starts a run's profiler, and stops it however the run ends.
#pragma once

#include <array>

#include "levin/core/process/main_guard.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/trainer.h"

namespace levin {

/// A scope in which the run's profiler, if there is one, is on.
class ProfiledStage {
 public:
  explicit ProfiledStage(Run& run) : profiler_(run.profiler.get()) {
    static constexpr std::array kStages{"fit", "validate", "test", "predict"};
    if (profiler_ == nullptr) return;
    profiler_->begin({.stage = kStages[static_cast<size_t>(*run.entry.stage)],
                      .log_dir = run.trainer.log_dir(),
                      .rank = run.strategy->ranks().rank(),
                      .on_gpu = run.strategy->placement().device().is_cuda(),
                      .time_split = &run.entry.time_split});
  }
  ~ProfiledStage() {
    if (profiler_ == nullptr) return;
    warn_if_it_throws("end of the profiler", [this] { profiler_->end(); });
  }
  ProfiledStage(const ProfiledStage&) = delete;
  ProfiledStage& operator=(const ProfiledStage&) = delete;

 private:
  Profiler* profiler_;
};

}  // namespace levin
