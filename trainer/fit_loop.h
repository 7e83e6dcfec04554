// Epochs of training batches with validation in between, until a limit is reached or somebody asks to stop.
#pragma once

#include "levin/trainer/batch_stream.h"
#include "levin/trainer/run.h"

namespace levin {

class FitLoop {
 public:
  explicit FitLoop(Run& run) : run_(run) {}

  /// Everything between on_fit_start and on_fit_end: the sanity check, the epochs, on_train_end.
  void run();

 private:
  void sanity_check();
  [[nodiscard]] bool is_done() const;
  [[nodiscard]] bool must_stop() const;
  void prepare_loaders();
  void start_epoch();
  void train_epoch();
  void train_batch(BatchStream& stream, const Batch& batch);
  void end_epoch();
  [[nodiscard]] bool epoch_validates() const;
  [[nodiscard]] bool validation_is_due() const;
  void write_step_metrics();

  Run& run_;
  int64_t window_seen_ = 0;  // batches of the open accumulation window
  int64_t window_size_ = 1;
};

/// How many training batches lie between two validations; kUnlimited: only at the end of an epoch.
/// Throws ConfigError where the interval does not fit the loader.
[[nodiscard]] int64_t validation_interval(const RunPlan& plan, int64_t num_training_batches);

}  // namespace levin
