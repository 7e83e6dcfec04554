// Ends a run when a metric stops improving.
//
//   .callbacks = {levin::EarlyStopping({.monitor = "val_loss", .patience = 3})}
//
// A value is judged once: an epoch or a validation in which the metric was not measured does not count.
// Every rank checks; all stop as soon as one rank decides to.
#pragma once

#include <optional>
#include <string>

#include "levin/callbacks/monitor.h"
#include "levin/core/options/fields.h"
#include "levin/trainer/callback.h"

namespace levin {

/// Options of EarlyStopping.
struct EarlyStoppingOptions {
  std::string monitor = "";  // name of a logged metric; required
  double min_delta = 0.0;    // smaller changes are no improvement
  int64_t patience = 3;      // checks without improvement, not epochs
  bool verbose = false;      // print each improvement and why the run ends
  EnumOption<MonitorMode> mode = MonitorMode::min;
  bool strict = true;        // an absent metric is an error; false: a warning
  bool check_finite = true;  // NaN and infinity end the run
  std::optional<double> stopping_threshold = std::nullopt;
  std::optional<double> divergence_threshold = std::nullopt;
  std::optional<bool> check_on_train_epoch_end = std::nullopt;

  template <class = void>
  static auto fields() {
    using O = EarlyStoppingOptions;
    return levin::fields(
        field("monitor", &O::monitor, "the metric to watch").not_empty(),
        field("min_delta", &O::min_delta, "an improvement is more than this").min(0.0),
        field("patience", &O::patience, "stop after this many checks without improvement").min(0),
        field("verbose", &O::verbose, "print improvements and why the run ends"),
        field("mode", &O::mode, "whether smaller or larger is better"),
        field("strict", &O::strict, "an absent metric is an error; false: a warning"),
        field("check_finite", &O::check_finite, "stop when the metric is NaN or infinite"),
        field("stopping_threshold", &O::stopping_threshold, "stop once the metric is better than this"),
        field("divergence_threshold", &O::divergence_threshold, "stop once the metric is worse than this"),
        field("check_on_train_epoch_end", &O::check_on_train_epoch_end,
              "check after each training epoch; false: after each validation; unset: whenever the metric has a new "
              "value, "
              "at the end of the epoch if validation only runs there"));
  }
};

/// A callback that stops a fit by a monitored metric. Throws Error if the metric is never logged and .strict is set.
/// Hooks run on every rank, from the training thread; deciding is collective.
class EarlyStopping final : public Callback {
 public:
  using Options = EarlyStoppingOptions;
  explicit EarlyStopping(EarlyStoppingOptions options);

  void on_train_start(Trainer& trainer, LightningModule&) override;
  void on_validation_end(Trainer& trainer, LightningModule&) override;
  void on_train_epoch_end(Trainer& trainer, LightningModule&) override;
  [[nodiscard]] bool is_monitoring() const override { return true; }

  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::string state_key() const override;

  /// Returns the epoch that was running when it stopped the run; 0 if it never did.
  [[nodiscard]] int64_t stopped_epoch() const { return stopped_epoch_; }
  /// Checks since the last improvement.
  [[nodiscard]] int64_t wait_count() const { return wait_count_; }
  /// Infinite, the worst value, before the first check.
  [[nodiscard]] double best_score() const { return best_score_; }

 private:
  [[nodiscard]] bool checks_on_train_epoch_end(const Trainer& trainer) const;
  /// Judges the metric if it was measured since the last check.
  void check(Trainer& trainer);
  std::string check_value(const Trainer& trainer);
  /// Processes one value; returns why the run must end, or "".
  std::string judge(double value);
  [[nodiscard]] bool is_better(double value, double other, double margin = 0) const;

  EarlyStoppingOptions options_;
  double best_score_;
  int64_t wait_count_ = 0;
  int64_t stopped_epoch_ = 0;
  int64_t judged_at_ = -1;  // training batches done when the value judged last was measured
};

}  // namespace levin
