// Writes the results of predict_step, and the step's step_output, to a file as they are computed, so that predictions
// need not fit into memory. A row begins with its sample's id, if the data has ids (Dataset::sample_id), and its number
// in the data, and names the predicted class. Several ranks write one file.
//
//   .callbacks = {levin::PredictionWriter({.output = "predictions.csv"})}      levin predict --output predictions.csv
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/takes_skipped_samples.h"

namespace levin {

/// When .safetensors files are written. batch: one for each batch; epoch: one at the end.
enum class WriteInterval { batch, epoch };
template <>
struct EnumNames<WriteInterval> {
  static constexpr EnumName<WriteInterval> names[] = {{"batch", WriteInterval::batch}, {"epoch", WriteInterval::epoch}};
};

/// What predictions of shape (samples, classes) are.
enum class PredictionScores { none, logits, probabilities };
template <>
struct EnumNames<PredictionScores> {
  static constexpr EnumName<PredictionScores> names[] = {{"none", PredictionScores::none},
                                                         {"logits", PredictionScores::logits},
                                                         {"probabilities", PredictionScores::probabilities}};
};

/// Options of PredictionWriter.
struct PredictionWriterOptions {
  std::string output = "";
  EnumOption<WriteInterval> write_interval = WriteInterval::batch;
  std::vector<std::string> classes = {};  // in the order of their indices; empty: the data's names
  EnumOption<PredictionScores> scores = PredictionScores::none;

  template <class = void>
  static auto fields() {
    using O = PredictionWriterOptions;
    return levin::fields(
        field("output", &O::output,
              "the file: .csv (a row per sample), .jsonl (an object per sample), .safetensors (a tensor per loader) or "
              ".npy (the predictions as one array)")
            .not_empty(),
        field("write_interval", &O::write_interval,
              ".safetensors: batch: one file per batch; epoch: one file at the end"),
        field("classes", &O::classes,
              "names for the column class, in the order of their indices; empty: the data's names"),
        field("scores", &O::scores,
              "logits or probabilities if predictions are scores of classes: adds the columns class and probability"));
  }
};

/// A callback that writes predictions of shape (samples, …) to one file, in the order of one process regardless of the
/// number of ranks; .safetensors also to one file per batch. The file appears when it is complete. Ranks keep their
/// rows in temporary files next to it, and rank 0 joins them at the end, so the folder must be shared between nodes.
/// Samples that the data set has skipped are listed with their reasons in a second file. Throws ConfigError for an
/// unknown ending, and Error if a file cannot be written, if outputs have different numbers of rows, or if rows do not
/// fit into one CSV table. Lightning's BasePredictionWriter is an abstract class with the same two intervals.
class PredictionWriter final : public Callback, public TakesSkippedSamples {
 public:
  using Options = PredictionWriterOptions;
  /// Throws ConfigError for any other ending.
  explicit PredictionWriter(PredictionWriterOptions options);
  PredictionWriter(PredictionWriter&&) noexcept;
  PredictionWriter& operator=(PredictionWriter&&) noexcept;
  ~PredictionWriter() override;

  void on_predict_start(Trainer& trainer, LightningModule&) override;
  void on_samples_skipped(const BatchSamples& samples, int64_t dataloader_idx) override;
  void on_predict_batch_end(Trainer& trainer, LightningModule&, const at::Tensor& prediction, const Batch&,
                            int64_t batch_idx, int64_t dataloader_idx) override;
  void on_predict_end(Trainer& trainer, LightningModule&) override;
  void on_exception(Trainer&, LightningModule&, const std::exception&) override;

  /// Returns the file. The names of .safetensors files per batch are derived from it.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Returns the number of rows written: so far by this rank, and after the prediction by all ranks.
  [[nodiscard]] int64_t samples() const { return samples_; }
  /// Returns the number of skipped samples, as samples() does.
  [[nodiscard]] int64_t skipped() const { return skipped_; }
  /// Returns the file that lists skipped samples, "predictions.skipped.csv". It exists if there are any.
  [[nodiscard]] std::string skipped_path() const;

 private:
  struct Writing;

  PredictionWriterOptions options_;
  std::string ending_;
  std::string path_;
  std::shared_ptr<Writing> writing_;  // during a prediction: files that are removed if it fails
  int64_t samples_ = 0;
  int64_t skipped_ = 0;
};

}  // namespace levin
