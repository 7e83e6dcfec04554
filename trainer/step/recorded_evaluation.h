// Implements TrainerOptions::record_steps for evaluation: validation_step, test_step and predict_step on one loader's
// batches are recorded once and then replayed, on CPUs. As in training (step_graph.h), replays are checked against the
// step itself: the first, second, fourth, eighth and so on, and the first of each pass over the loader.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/data/batch.h"
#include "levin/trainer/step/recorded_steps.h"
#include "levin/trainer/step/recording_settings.h"

namespace levin {

/// The recorded step of one loader.
class RecordedEvaluation : RecordedSteps {
 public:
  /// Runs the step on a batch, in autocast's scope. Returns the prediction, or nothing.
  using Step = c10::function_ref<at::Tensor(const Batch&)>;

  /// The number of batches, over all passes, that run eagerly before one is recorded.
  static constexpr int64_t kWarmUpBatches = 2;
  /// Steps are recorded again if weights have moved in memory or modes have changed.
  using RecordedSteps::kMaxChanges;

  /// Returns null if the run does not record its steps, or the strategy cannot record steps of an evaluation.
  [[nodiscard]] static std::shared_ptr<RecordedEvaluation> make(StepCore& core);

  /// Begins a pass over the loader. Ranks need not call it together.
  void begin_pass();
  /// Runs `step` on the batch, or replays it if there is a recording that fits. A step that cannot be recorded runs
  /// eagerly, with one warning.
  [[nodiscard]] at::Tensor step(const Batch& batch, int64_t batch_idx, Step step);

 private:
  /// One run of the step.
  struct Result : RecordedRun {
    at::Tensor prediction = {};
  };
  RecordedEvaluation(StepCore& core, std::shared_ptr<StepRecorder> recorder);

  [[nodiscard]] at::Tensor repeat(const Batch& batch, int64_t batch_idx, Step step);
  // These return why the steps are not to be recorded any more; "" if they may be.
  [[nodiscard]] std::string record(Step step);
  [[nodiscard]] std::string check(int64_t batch_idx, Step step);
  void run_recorded(Result& result, Step step);
  [[nodiscard]] static std::vector<at::Tensor> known_results(const Result& result);
  [[nodiscard]] static StepResults results_of(const Result& result);
  void forget();
  void drop_recordings() override;
  void report(const RecordingTrial& trial) override;

  std::optional<SettingsReader> reader_;  // of the recording
  RecordingSettings settings_;
  std::unique_ptr<Recording> recording_;
  Result recorded_;  // what each replay writes
  int64_t warm_up_left_ = kWarmUpBatches;
  int64_t replays_ = 0;
  int64_t replays_of_pass_ = 0;
};

}  // namespace levin
