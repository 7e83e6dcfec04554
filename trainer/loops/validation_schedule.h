// Decides after which training batches a fit validates.
#pragma once

#include <chrono>

#include "levin/trainer/run/run.h"

namespace levin {

/// The validations of a fit.
class ValidationSchedule {
 public:
  explicit ValidationSchedule(const Run& run) : run_(run) {}

  /// Computes the interval for a new training loader. Throws ConfigError if the interval does not fit it.
  void use_loader();
  /// Returns whether a validation follows the training batch. `must_stop`: the run ends with this batch. Every rank
  /// calls it after each batch.
  [[nodiscard]] bool is_due(bool must_stop);
  /// Returns the same without communication and without the clock: false for periods of time.
  [[nodiscard]] bool is_known_to_be_due();
  /// Starts a period of time: when training begins, and after each validation.
  void restart_clock() { since_ = std::chrono::steady_clock::now(); }

 private:
  [[nodiscard]] bool epoch_validates() const;
  [[nodiscard]] bool period_is_over(const Period& period);
  void warn_of_short_epoch(int64_t batches);

  const Run& run_;
  int64_t interval_ = kUnlimited;  // training batches between two validations
  bool warned_ = false;            // of epochs shorter than the interval
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

/// Returns the number of training batches from one validation to the next; kUnlimited: it runs at the end of an epoch,
/// or after a period. Throws ConfigError if the interval does not fit the loader.
[[nodiscard]] int64_t validation_interval(const RunPlan& plan, int64_t num_training_batches);

}  // namespace levin
