// Implements TrainerOptions::num_threads: auto. Times the steps of a fit with several numbers of threads and keeps the
// fastest.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "levin/strategies/device/op_threads.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// Finds the number of threads with which the steps of a fit are fastest: small steps lose time waiting for other
/// threads, and so do all steps while other programs use the same cores. It reads no clock, so ranks that are given the
/// same times make the same choice.
class ThreadTuner {
 public:
  /// A number of threads and its time.
  struct Timed {
    int threads = 1;
    double seconds = 0;  // of one window
  };

  /// Compares `most` threads and the powers of two below, beginning with `start` (the choice of an earlier fit; 0:
  /// `most`), and continues with fewer and with more as long as these are not much slower. Of numbers with equal times
  /// the smallest is chosen. `most`: at least 1.
  explicit ThreadTuner(int most, int start = 0);

  /// Returns the number of threads for the next windows.
  [[nodiscard]] int threads() const { return counts_[at_]; }
  /// Returns over how many windows the next time is to be taken: at least 1.
  [[nodiscard]] int64_t windows() const { return windows_; }
  /// Adds the mean time of one window, over the last windows(). Returns whether that ended a measurement.
  bool add(double seconds);

  /// Returns the times of the last measurement that ended, in the order in which they were taken; the first is for the
  /// number of threads before it.
  [[nodiscard]] const std::vector<Timed>& timed() const { return timed_; }

 private:
  enum class Phase { warm_up, probe, measure, keep };

  void begin(size_t first);
  void try_count(size_t which);
  bool finish_count(double seconds);
  bool next_count();
  void choose();
  void watch(double seconds);
  [[nodiscard]] double best() const;

  std::vector<int> counts_;  // ascending
  size_t at_ = 0;            // of counts_: in use
  size_t first_ = 0;         // where this measurement began
  Phase phase_ = Phase::warm_up;
  int64_t windows_ = 1;
  int direction_ = -1;
  double warm_up_ = 0;  // seconds of the first window with this number
  std::vector<Timed> running_ = {};
  std::vector<Timed> timed_ = {};
  double spent_ = 0;      // seconds of the last or running measurement
  double since_ = 0;      // seconds since it ended
  double again_in_ = 60;  // seconds until the next one, if nothing changes before
  double patience_ =
      5;  // times `spent_`: how long after it slower steps begin the next one; doubled by one that changed nothing
  double usual_ = 0;  // seconds of a window with the chosen number
  int slow_ = 0;      // times in a row that were much longer
};

/// A scope in which operators of the training thread use the number of threads that it chooses. Ranks choose together.
class ThreadTuning {
 public:
  /// Returns null if a fit of `run` has nothing to choose: with num_threads or OMP_NUM_THREADS set, on a GPU, with
  /// deterministic algorithms, and with a single thread. Every rank calls it.
  [[nodiscard]] static std::unique_ptr<ThreadTuning> of(Run& run);

  /// Begins the time of a training batch, after it was fetched.
  void begin_batch() { began_ = std::chrono::steady_clock::now(); }
  /// Ends the time of the batch, before a validation. `window_ends`: its update is done.
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
