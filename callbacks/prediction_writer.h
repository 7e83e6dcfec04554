// Writes the results of predict_step, and the step's step_output, to a file as they are computed, so that predictions
// need not fit into memory. A row begins with its sample's id, if the data has ids (Dataset::sample_id), and names the
// predicted class.
//
//   .callbacks = {levin::PredictionWriter({.output = "predictions.csv"})}      levin predict --output predictions.csv
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/step_output.h"

namespace levin {

/// When rows are written. batch: as they are computed; epoch: all at the end.
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
              "the file: .csv (a row per sample), .jsonl (an object per sample) or .safetensors (a tensor per loader)")
            .not_empty(),
        field("write_interval", &O::write_interval,
              "batch: rows are written immediately, .safetensors as one file per batch; epoch: all at the end"),
        field("classes", &O::classes,
              "names for the column class, in the order of their indices; empty: the data's names"),
        field("scores", &O::scores,
              "logits or probabilities if predictions are scores of classes: adds the columns class and probability"));
  }
};

/// A callback that writes predictions of shape (samples, …): one file per rank, or one per batch for .safetensors.
/// Throws ConfigError for an unknown ending, and Error if a file cannot be written, if outputs have different numbers
/// of rows, or if rows do not fit into one CSV table. Lightning's BasePredictionWriter is an abstract class with the
/// same two intervals.
class PredictionWriter final : public Callback {
 public:
  using Options = PredictionWriterOptions;
  /// Throws ConfigError for any other ending.
  explicit PredictionWriter(PredictionWriterOptions options);
  PredictionWriter(PredictionWriter&&) noexcept;
  PredictionWriter& operator=(PredictionWriter&&) noexcept;
  ~PredictionWriter() override;

  void on_predict_start(Trainer& trainer, LightningModule&) override;
  void on_predict_batch_end(Trainer& trainer, LightningModule&, const at::Tensor& prediction, const Batch&,
                            int64_t batch_idx, int64_t dataloader_idx) override;
  void on_predict_end(Trainer&, LightningModule&) override;
  void on_exception(Trainer&, LightningModule&, const std::exception&) override;

  /// Returns this rank's file, "predictions.rank1.csv" if there are several ranks. It exists once it is complete. The
  /// names of .safetensors files per batch are derived from it.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int64_t samples() const { return samples_; }

 private:
  struct UnfinishedFile;
  /// A batch on the CPU: the prediction, named "prediction", then the step's outputs; (samples, …) each.
  using Parts = std::vector<std::pair<std::string, at::Tensor>>;
  struct Rows {
    Parts parts;
    std::vector<std::string> ids = {};      // of the samples; empty: unknown
    std::vector<std::string> classes = {};  // predicted names; empty: unknown
  };

  [[nodiscard]] Rows rows_of(const at::Tensor& prediction, const StepOutput& outputs, const Batch& batch) const;
  void add_class(Rows& rows) const;
  void write_rows(const Rows& rows, int64_t batch_idx, int64_t dataloader_idx);
  void start_table(const Rows& rows);
  void write_kept();
  void put(std::string& text);

  PredictionWriterOptions options_;
  std::string ending_;
  std::string path_;
  std::shared_ptr<UnfinishedFile> unfinished_;  // rows until all are written; removed if destroyed before that
  int64_t samples_ = 0;
  std::vector<std::string> classes_ = {};                      // names of the classes
  std::vector<std::pair<std::string, int64_t>> columns_ = {};  // values of each part in a CSV row; empty: not known yet
  bool has_ids_ = false;                                       // in the first column of a CSV file
  std::map<int64_t, std::vector<Rows>> kept_ = {};             // by loader, until the end
};

}  // namespace levin
