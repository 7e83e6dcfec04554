// Shows the progress of a run: one live line on a terminal, elsewhere a line per epoch and one every ten seconds.
//
//   Epoch 2/3  ███████▌       54 %  507/938  4321 it/s  0:00:03 left  train_loss 0.412  1.3 GB
//
// If training waits for data, the line shows it ("waiting for data 43 %"), and a hint is printed once. Metrics are read
// only when a line is drawn, so a batch costs one reading of the clock.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/core/process/progress_line.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/metrics.h"
#include "levin/trainer/replaces_default.h"

namespace levin {

/// Options of ProgressBar.
struct ProgressBarOptions {
  Seconds refresh_interval = Seconds(0.1);  // of the live line
  Seconds line_interval = Seconds(10);      // without a terminal

  template <class = void>
  static auto fields() {
    auto above_zero = [](const Seconds& span) { return span.count() > 0; };
    return levin::fields(
        field("refresh_interval", &ProgressBarOptions::refresh_interval, "time between two updates of the live line")
            .check(above_zero, "> 0"),
        field("line_interval", &ProgressBarOptions::line_interval, "time between two lines without a terminal")
            .check(above_zero, "> 0"));
  }
};

/// A callback that prints progress on rank 0; the hooks run on every rank.
class ProgressBar final : public Callback, public ReplacesDefault {
 public:
  using Options = ProgressBarOptions;
  explicit ProgressBar(Defaults = {}) : ProgressBar(ProgressBarOptions()) {}
  explicit ProgressBar(ProgressBarOptions options);

  [[nodiscard]] std::string default_for() const override { return "progress_bar"; }
  /// So that the epoch's line shows values logged at the end of the epoch.
  [[nodiscard]] bool is_monitoring() const override { return true; }

  void on_fit_start(Trainer& trainer, LightningModule&) override;
  void on_fit_end(Trainer& trainer, LightningModule&) override;
  void on_train_start(Trainer& trainer, LightningModule&) override;
  void on_train_epoch_start(Trainer& trainer, LightningModule&) override;
  void on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&,
                          int64_t batch_idx) override;
  void on_train_epoch_end(Trainer& trainer, LightningModule&) override;
  void on_validation_start(Trainer& trainer, LightningModule&) override { start_evaluation(trainer, "Validate"); }
  void on_validation_batch_end(Trainer& trainer, LightningModule&, const Batch&, int64_t, int64_t) override {
    evaluated_batch(trainer);
  }
  void on_validation_end(Trainer& trainer, LightningModule&) override { end_evaluation(trainer); }
  void on_test_start(Trainer& trainer, LightningModule&) override { start_evaluation(trainer, "Test"); }
  void on_test_batch_end(Trainer& trainer, LightningModule&, const Batch&, int64_t, int64_t) override {
    evaluated_batch(trainer);
  }
  void on_test_end(Trainer& trainer, LightningModule&) override { end_evaluation(trainer); }
  void on_predict_start(Trainer& trainer, LightningModule&) override { start_evaluation(trainer, "Predict"); }
  void on_predict_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t,
                            int64_t) override {
    evaluated_batch(trainer);
  }
  void on_predict_end(Trainer& trainer, LightningModule&) override { end_evaluation(trainer); }
  void on_exception(Trainer&, LightningModule&, const std::exception&) override;

 private:
  using Clock = std::chrono::steady_clock;

  /// One pass over a loader.
  struct Pass {
    std::string title = "";
    int64_t done = 0;  // batches, including those before a restart
    int64_t seen = 0;  // batches of this process, for the rate
    std::optional<int64_t> total = std::nullopt;
    Clock::time_point started = {};
    Clock::duration paused = Clock::duration::zero();  // validation within a training epoch

    [[nodiscard]] double seconds(Clock::time_point now) const;
    [[nodiscard]] double rate(Clock::time_point now) const;
  };

  void start_training_pass(Trainer& trainer);
  void start_evaluation(Trainer& trainer, const std::string& title);
  void evaluated_batch(Trainer& trainer);
  void end_evaluation(Trainer& trainer);
  void draw_if_due(Trainer& trainer, const Pass& pass);
  void draw(Trainer& trainer, const Pass& pass, Clock::time_point now);
  [[nodiscard]] ProgressView view_of(Trainer& trainer, const Pass& pass, Clock::time_point now) const;
  [[nodiscard]] std::optional<double> run_seconds_left(const Trainer& trainer, Clock::time_point now) const;
  void print_summary(const Pass& pass, Clock::time_point now, const Metrics& metrics);
  void schedule_next(Clock::time_point now);
  void print_epoch(Trainer& trainer);
  void advise(const Trainer& trainer);

  ProgressBarOptions options_;
  Pass train_;
  Pass evaluation_;
  Clock::time_point next_draw_ = {};
  Clock::time_point fit_started_ = {};
  int64_t first_step_ = 0;  // counters when this fit began
  int64_t first_epoch_ = 0;
  int64_t batches_of_fit_ = 0;
  int64_t lines_ = 0;  // epoch lines printed
  Clock::time_point last_line_ = {};
  bool trained_ = false;
  bool advised_ = false;  // once per fit
};

}  // namespace levin
