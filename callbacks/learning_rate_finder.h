// Finds a learning rate before a fit: raises it step by step, watches the loss (Smith 2017), and suggests the one at
// which the loss falls most steeply.
//
//   .callbacks = {levin::LearningRateFinder({.num_training = 200, .plot = "lr_find.svg"})}
//
// The effects of its steps are undone (trainer/trial_runs.h). A run that resumes from a checkpoint uses the result
// found then. Put it before callbacks that use optimizers, which are created again. `levin tune` runs it alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "levin/callbacks/lr_curve.h"
#include "levin/core/fields.h"
#include "levin/trainer/callback.h"

namespace levin {

enum class LrSpacing { exponential, linear };
template <>
struct EnumNames<LrSpacing> {
  static constexpr std::array names{std::pair{"exponential", LrSpacing::exponential},
                                    std::pair{"linear", LrSpacing::linear}};
};

struct LearningRateFinderOptions {
  double min_lr = 1e-8;
  double max_lr = 1;
  int64_t num_training = 100;  // optimizer steps
  LrSpacing mode = LrSpacing::exponential;
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

  [[nodiscard]] State state() const override;
  void load_state(const State& saved) override;
  [[nodiscard]] std::string state_key() const override { return "LearningRateFinder"; }

  /// Of the first parameter group; the others keep their ratio to it. Unset before, and if the curve suggests none.
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
