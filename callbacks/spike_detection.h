// Ends a run when the training loss jumps, and records which batches caused it. The next run skips them.
//
//   .callbacks = {levin::SpikeDetection({.window = 50, .warmup = 100, .exclude_batches_path = "runs/a"})}
//
// An epoch and a batch's index in it name the same samples in every run with the same seed, data and batch size.
// Every rank checks; all stop as soon as one sees a spike. Waits for the loss of every batch.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "levin/callbacks/monitor.h"
#include "levin/core/options/fields.h"
#include "levin/trainer/callback.h"

namespace levin {

/// Options of SpikeDetection.
struct SpikeDetectionOptions {
  EnumOption<MonitorMode> mode = MonitorMode::min;
  int64_t window = 10;  // losses
  int64_t warmup = 1;   // losses
  std::optional<double> atol = std::nullopt;
  std::optional<double> rtol = 2.0;
  std::string exclude_batches_path = "";
  bool finite_only = true;

  template <class = void>
  static auto fields() {
    using O = SpikeDetectionOptions;
    const auto not_negative = [](const std::optional<double>& value) { return !value || *value >= 0; };
    return levin::fields(
        field("mode", &O::mode, "whether a good loss is small or large"),
        field("window", &O::window, "number of losses whose mean a loss is compared with").min(1),
        field("warmup", &O::warmup, "number of losses before the first check").min(1),
        field("atol", &O::atol, "minimum difference of a spike from the mean; null: no such condition")
            .check(not_negative, ">= 0"),
        field("rtol", &O::rtol,
              "minimum difference of a spike from the mean, relative to the mean; null: no such condition")
            .check(not_negative, ">= 0"),
        field("exclude_batches_path", &O::exclude_batches_path,
              "the JSON file of batches to skip, or its folder; empty: skip_batches.json in the run's root"),
        field("finite_only", &O::finite_only, "NaN and infinity are spikes; false: they are ignored"));
  }
};

/// A callback that stops a fit at a loss spike: a finite loss that is worse than the previous one and at least atol and
/// rtol from the mean of the window. Hooks run on every rank; rank 0 writes the file.
class SpikeDetection final : public Callback {
 public:
  using Options = SpikeDetectionOptions;
  explicit SpikeDetection(Defaults = {}) : SpikeDetection(SpikeDetectionOptions()) {}
  explicit SpikeDetection(SpikeDetectionOptions options);

  /// Reads the file of batches to skip, if it exists; throws ConfigError if it is invalid.
  void setup(Trainer& trainer, LightningModule&, Stage stage) override;
  /// Skips a batch that an earlier run recorded.
  void on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t batch_idx) override;
  /// Throws Error on a spike, after recording the batch and the one before it, which may have caused it.
  void on_train_batch_end(Trainer& trainer, LightningModule& module, const at::Tensor& loss, const Batch&,
                          int64_t batch_idx) override;

  /// Also records a batch whose loss was not finite, at which the trainer stopped.
  void on_exception(Trainer& trainer, LightningModule&, const std::exception& error) override;

  [[nodiscard]] State state_dict() const override;
  /// Throws CheckpointError if `saved` is damaged.
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::string state_key() const override { return "SpikeDetection"; }

  /// Returns whether this or an earlier run recorded the batch.
  [[nodiscard]] bool is_excluded(int64_t epoch, int64_t batch_idx) const;
  [[nodiscard]] const std::string& exclude_batches_path() const { return path_; }

 private:
  [[nodiscard]] bool is_spike(double loss) const;
  [[nodiscard]] double mean() const;
  [[noreturn]] void stop(Trainer& trainer, double loss, int64_t batch_idx);
  /// Adds the batch and the one before it to the file; returns the outcome, for a message.
  std::string write_down(Trainer& trainer, int64_t batch_idx);
  void read_excluded();
  void write_excluded() const;

  SpikeDetectionOptions options_;
  std::string path_;
  std::set<std::pair<int64_t, int64_t>> excluded_;  // (epoch, batch); epoch -1: of every epoch
  std::deque<double> losses_;                       // the last `window`
  int64_t seen_ = 0;                                // losses so far
};

}  // namespace levin
