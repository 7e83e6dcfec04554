// The scheduler that follows a metric.
//
//   ReduceLROnPlateau scheduler(optimizer, {.patience = 5});
//   …scheduler.step(val_loss);
#pragma once

#include "levin/optim/lr_scheduler.h"

namespace levin {

/// Whether a smaller or a larger metric is better.
enum class PlateauMode { min, max };
template <>
struct EnumNames<PlateauMode> {
  static constexpr EnumName<PlateauMode> names[] = {{"min", PlateauMode::min}, {"max", PlateauMode::max}};
};

/// Whether `threshold` is relative to the best value, or absolute.
enum class ThresholdMode { rel, abs };
template <>
struct EnumNames<ThresholdMode> {
  static constexpr EnumName<ThresholdMode> names[] = {{"rel", ThresholdMode::rel}, {"abs", ThresholdMode::abs}};
};

/// Options of ReduceLROnPlateau; names and defaults are PyTorch's.
struct ReduceLROnPlateauOptions {
  static constexpr const char* kName = "ReduceLROnPlateau";

  EnumOption<PlateauMode> mode = PlateauMode::min;
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  EnumOption<ThresholdMode> threshold_mode = ThresholdMode::rel;
  int64_t cooldown = 0;
  FloatOrList min_lr = 0.0;
  double eps = 1e-8;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("mode", &ReduceLROnPlateauOptions::mode, "whether the metric should fall or rise"),
        field("factor", &ReduceLROnPlateauOptions::factor, "of lr at each reduction").min(0.0).below(1.0),
        field("patience", &ReduceLROnPlateauOptions::patience, "steps without improvement that are tolerated").min(0),
        field("threshold", &ReduceLROnPlateauOptions::threshold, "minimum improvement"),
        field("threshold_mode", &ReduceLROnPlateauOptions::threshold_mode,
              "threshold relative to the absolute value of the best, or absolute"),
        field("cooldown", &ReduceLROnPlateauOptions::cooldown, "steps after a reduction that are not counted").min(0),
        field("min_lr", &ReduceLROnPlateauOptions::min_lr, "lowest lr; one, or one per group"),
        field("eps", &ReduceLROnPlateauOptions::eps, "smaller changes of lr are ignored").min(0.0));
  }
};

extern template class SchedulerOf<ReduceLROnPlateauOptions>;

/// A factor on lr each time the metric has not improved for more than `patience` steps. PyTorch's ReduceLROnPlateau.
/// Call step(metric); step() throws Error.
class ReduceLROnPlateau final : public SchedulerOf<ReduceLROnPlateauOptions> {
 public:
  using SchedulerOf::SchedulerOf;
  ReduceLROnPlateau() = default;
  ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options) : SchedulerOf(std::move(options)) {
    attach(optimizer);
  }
  [[nodiscard]] bool wants_metric() const override { return true; }
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;

 private:
  void begin() override;
  void advance(std::optional<double> metric) override;
  std::vector<double> next_lr() override;
  void undo() override {}
  [[nodiscard]] bool is_better(double metric) const;
  void reduce();

  std::vector<double> min_lrs_;
  double best_ = 0;
  int64_t num_bad_epochs_ = 0;
  int64_t cooldown_counter_ = 0;
};

}  // namespace levin
