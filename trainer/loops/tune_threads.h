// TrainerOptions::num_threads: auto. Times the steps of a fit with several numbers of threads and keeps the fastest.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "levin/strategies/device/op_threads.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/run/thread_tuner.h"

namespace levin {

/// While it lives, operators of the training thread use as many threads as it chooses. Ranks choose together.
class ThreadTuning {
 public:
  /// Null where a fit of `run` has nothing to choose: with num_threads or OMP_NUM_THREADS set, on a GPU, with
  /// deterministic algorithms, and with a single thread. Every rank calls it.
  [[nodiscard]] static std::unique_ptr<ThreadTuning> of(Run& run);

  /// Around what a training batch takes, without waiting for it and without validation. `window_ends`: with its update.
  void begin_batch() { began_ = std::chrono::steady_clock::now(); }
  void end_batch(bool window_ends) {
    window_ += std::chrono::steady_clock::now() - began_;
    if (window_ends) end_window();
  }

 private:
  ThreadTuning(Run& run, int most);
  void end_window();
  void use(int threads);
  void report() const;

  Run& run_;
  ThreadTuner tuner_;
  std::optional<OpThreads> threads_;
  std::chrono::steady_clock::time_point began_ = {};
  std::chrono::duration<double> window_ = {};
  std::vector<double> windows_ = {};  // seconds of each since the tuner was given a time
};

}  // namespace levin
