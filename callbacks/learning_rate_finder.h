// Finds a learning rate before a fit: raises it step by step, watches the loss (Smith 2017), and suggests the one at
// which the loss falls most steeply.
//
//   .callbacks = {levin::LearningRateFinder({.num_training = 200, .plot = "lr_find.svg"})}
//
// The effects of its steps are undone (trainer/trial_runs.h). A run that resumes from a checkpoint uses the result
// found then. Put it before callbacks that use optimizers, which are created again. `levin tune` runs it alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/trainer/callback.h"

namespace levin {

/// The losses of a learning-rate range test (Smith 2017, https://arxiv.org/abs/1506.01186), and the rate they suggest.
class LrCurve {
 public:
  /// One trial step: the learning rate, and the loss.
  struct Point {
    double lr = 0;
    double loss = 0;  // smoothed
  };

  /// `logarithmic`: whether learning rates grow by a factor, so that slopes and the plot are over their logarithm.
  explicit LrCurve(bool logarithmic) : logarithmic_(logarithmic) {}

  /// Adds the loss of the next step. Losses are smoothed as Lightning's lr_find does it: an exponential moving
  /// average with factor 0.98, corrected for its start at 0.
  void add(double lr, double loss);

  /// Returns whether the last smoothed loss is not finite, or more than `threshold` times the best. Below 0, where that
  /// product would be better than the best, the limit is the same distance above the best.
  [[nodiscard]] bool diverges(double threshold) const;

  [[nodiscard]] const std::vector<Point>& points() const { return points_; }

  /// Returns the learning rate at which the smoothed loss falls most steeply. The first 10 steps, the last step, and
  /// steps whose loss is not finite are left out. Slopes are central differences over the plot's axis. Unset with fewer
  /// than two points.
  [[nodiscard]] std::optional<double> suggestion() const;

  /// CSV: a header "lr,loss" and a line for each step.
  [[nodiscard]] std::string csv() const;
  /// Returns a plot of the curve, its axes and the suggestion, 720 x 440 pixels.
  [[nodiscard]] std::string svg() const;

 private:
  [[nodiscard]] double axis(double lr) const;

  bool logarithmic_;
  double average_ = 0;
  double weight_ = 1;  // 0.98^n
  double best_ = 0;
  std::vector<Point> points_;
};

/// How the learning rate grows from step to step.
enum class LrSpacing { exponential, linear };
template <>
struct EnumNames<LrSpacing> {
  static constexpr EnumName<LrSpacing> names[] = {{"exponential", LrSpacing::exponential},
                                                  {"linear", LrSpacing::linear}};
};

/// Options of LearningRateFinder.
struct LearningRateFinderOptions {
  double min_lr = 1e-8;
  double max_lr = 1;
  int64_t num_training = 100;  // optimizer steps
  EnumOption<LrSpacing> mode = LrSpacing::exponential;
  std::optional<double> early_stop_threshold = 4;
  bool update = true;
  std::string plot = "";

  template <class = void>
  static auto fields() {
    using O = LearningRateFinderOptions;
    return levin::fields(field("min_lr", &O::min_lr, "learning rate of the first step").above(0.0),
                         field("max_lr", &O::max_lr, "learning rate of the last step").above(0.0),
                         field("num_training", &O::num_training, "optimizer steps").min(2),
                         field("mode", &O::mode, "how the learning rate grows: exponential (by a factor) or linear"),
                         field("early_stop_threshold", &O::early_stop_threshold,
                               "end when the smoothed loss is this many times its best; null: never")
                             .check([](const std::optional<double>& v) { return !v || *v > 1; }, "> 1, or null"),
                         field("update", &O::update, "train with the suggested rate; false: only print it"),
                         field("plot", &O::plot, "an SVG file for the curve, with a CSV file next to it; \"\": none"));
  }
};

/// A callback that raises the learning rate from min_lr to max_lr in trial steps before a fit, suggests a rate, and
/// trains with it. Works on one rank: with several, on_fit_start throws ConfigError.
class LearningRateFinder final : public Callback {
 public:
  using Options = LearningRateFinderOptions;
  explicit LearningRateFinder(Defaults = {}) : LearningRateFinder(LearningRateFinderOptions()) {}
  explicit LearningRateFinder(LearningRateFinderOptions options);

  /// Throws ConfigError for a stage that does not train, unless a fit came before it.
  void setup(Trainer& trainer, LightningModule&, Stage stage) override;
  /// Throws ConfigError if rates cannot be tried: several ranks, manual optimization, a learning rate of 0. Files are
  /// written by rank 0.
  void on_fit_start(Trainer& trainer, LightningModule& module) override;

  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::string state_key() const override { return "LearningRateFinder"; }

  /// Returns the rate for the first parameter group; other groups keep their ratio to it. Unset before the search, and
  /// if the curve suggests none.
  [[nodiscard]] std::optional<double> suggestion() const { return suggestion_; }
  [[nodiscard]] const LrCurve& curve() const { return curve_; }

 private:
  [[nodiscard]] double lr_of(int64_t step) const;
  void search(Trainer& trainer);
  void write_files() const;

  LearningRateFinderOptions options_;
  LrCurve curve_;
  std::optional<double> suggestion_;
  double factor_ = 1;  // of every group
  bool searched_ = false;
};

}  // namespace levin
