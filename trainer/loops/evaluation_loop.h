// One pass over the evaluation loaders: validation inside fit, validate, test, predict.
#pragma once

#include "levin/trainer/loops/outside_requests.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/trainer.h"

namespace levin {

/// A pass with the hooks of a stage.
class EvaluationLoop {
 public:
  /// `stage`: validate, test or predict. `outside`: the requests to the fit that runs the validation, checked between
  /// batches; null outside of fit.
  EvaluationLoop(Run& run, Stage stage, OutsideRequests* outside = nullptr)
      : run_(run), stage_(stage), outside_(outside) {}

  /// Runs at most `limit` batches of each loader, within the run's own limits. Returns each loader's metrics.
  std::vector<Metrics> run(int64_t limit);

  /// Makes the results of predict_step go to callbacks only. Called before run().
  void keep_no_predictions() { keeps_predictions_ = false; }
  /// Returns the results of predict_step, after run().
  [[nodiscard]] Predictions take_predictions() { return std::move(predictions_); }

 private:
  class Meetings;

  void run_batches(int64_t limit);
  void run_batch(Batch&& fetched, int64_t batch_idx, int64_t loader_idx);
  void report_skipped(const BatchSamples& samples, int64_t loader_idx);
  void keep_prediction(const at::Tensor& prediction, size_t loader);
  [[nodiscard]] OutsideRequests::Requests look_outside();
  void act(const OutsideRequests::Requests& requests);
  void write_step_metrics(int64_t loader_idx);
  void note_batch_only();
  [[nodiscard]] std::vector<Metrics> finish_metrics();

  Run& run_;
  Stage stage_;
  OutsideRequests* outside_;
  bool keeps_predictions_ = true;
  Predictions predictions_ = {};
  std::vector<int64_t> idle_loaders_ = {};  // loaders without a batch for this rank
};

}  // namespace levin
