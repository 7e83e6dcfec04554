// Runs epochs of training batches, with validation in between, until a limit is reached or a stop is requested.
#pragma once

#include <memory>
#include <optional>

#include "levin/core/state.h"
#include "levin/trainer/loops/keep_memory.h"
#include "levin/trainer/loops/outside_requests.h"
#include "levin/trainer/loops/plan_recomputation.h"
#include "levin/trainer/loops/tune_threads.h"
#include "levin/trainer/loops/validation_schedule.h"
#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// The training loop of one fit.
class FitLoop {
 public:
  explicit FitLoop(Run& run) : run_(run), outside_(run), validation_(run) {}

  /// Runs everything between on_fit_start and on_fit_end: the sanity check, the epochs, on_train_end.
  void run();
  /// Does what run() does before the first training batch, and then measures the module. Returns nothing if there is no
  /// batch.
  [[nodiscard]] std::optional<MeasuredFit> measure(int64_t replicas);

 private:
  void sanity_check();
  [[nodiscard]] bool is_done() const;
  [[nodiscard]] bool must_stop() const;
  void end_training();
  void train_nothing();
  void prepare_loaders();
  /// Whether reload_dataloaders_every_n_epochs makes the training loader anew for the epoch that comes.
  [[nodiscard]] bool train_loader_is_due() const;
  void continue_random_numbers();
  void start_epoch();
  void train_epoch(bool resumed);
  [[nodiscard]] bool epoch_must_end() const;
  void train_batch(BatchStream& stream, Batch&& fetched);
  void open_window(const BatchStream& stream);
  void close_window(int64_t steps_before);
  /// Does what follows the update of a batch (metrics, validation, schedulers), beginning with Epoch::pending.
  void finish_batch();
  void end_pass();
  void validate_if_due();
  /// Handles checkpoints, and requests from outside, between two batches.
  void between_batches();
  void end_epoch();
  void run_epoch_end_hooks();
  void validate();
  void write_step_metrics();

  Run& run_;
  OutsideRequests outside_;
  ValidationSchedule validation_;
  int64_t validated_after_ = -1;  // Progress::total_batches of the last validation
  bool warned_of_short_pass_ = false;
  std::optional<State> numbers_after_loading_ = std::nullopt;  // of the loader that a resumed run's first epoch makes
  std::unique_ptr<MemoryKeeping> memory_keeping_ = nullptr;    // null: malloc's behaviour is unchanged
  std::unique_ptr<ThreadTuning> thread_tuning_ = nullptr;      // null: the number of threads is fixed
};

}  // namespace levin
