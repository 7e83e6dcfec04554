// Schedulers that raise and lower lr, and momentum against it, batch by batch.
//
//   OneCycleLR scheduler(optimizer, {.max_lr = 0.1, .total_steps = 10000});
#pragma once

#include <functional>

#include "levin/optim/lr_scheduler.h"

namespace levin {

/// The shape of a transition: half a cosine, or a line.
enum class AnnealStrategy { cos, linear };
template <>
struct EnumNames<AnnealStrategy> {
  static constexpr EnumName<AnnealStrategy> names[] = {{"cos", AnnealStrategy::cos},
                                                       {"linear", AnnealStrategy::linear}};
};

/// How the height of cycles changes. triangular: it stays; triangular2: halves each cycle; exp_range: shrinks by gamma
/// each step.
enum class CyclicMode { triangular, triangular2, exp_range };
template <>
struct EnumNames<CyclicMode> {
  static constexpr EnumName<CyclicMode> names[] = {{"triangular", CyclicMode::triangular},
                                                   {"triangular2", CyclicMode::triangular2},
                                                   {"exp_range", CyclicMode::exp_range}};
};

/// The argument of a scale_fn: the cycle, or the step.
enum class ScaleMode { cycle, iterations };
template <>
struct EnumNames<ScaleMode> {
  static constexpr EnumName<ScaleMode> names[] = {{"cycle", ScaleMode::cycle}, {"iterations", ScaleMode::iterations}};
};

namespace detail {
/// Whether the number, or each of a list that is not empty, is above `low`.
bool all_above(const FloatOrList& value, double low);
}  // namespace detail

/// Options of OneCycleLR; names and defaults are PyTorch's.
struct OneCycleLROptions {
  static constexpr const char* kName = "OneCycleLR";

  FloatOrList max_lr = 0.0;
  std::optional<int64_t> total_steps =
      {};  // if this and the next two are unset, the trainer fills in the steps of the fit
  std::optional<int64_t> epochs = {};
  std::optional<int64_t> steps_per_epoch = {};
  double pct_start = 0.3;
  EnumOption<AnnealStrategy> anneal_strategy = AnnealStrategy::cos;
  bool cycle_momentum = true;
  FloatOrList base_momentum = 0.85;
  FloatOrList max_momentum = 0.95;
  double div_factor = 25;
  double final_div_factor = 1e4;
  bool three_phase = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("max_lr", &OneCycleLROptions::max_lr, "peak of lr; one, or one per group")
            .check([](const FloatOrList& value) { return detail::all_above(value, 0); }, "set, and > 0"),
        field("total_steps", &OneCycleLROptions::total_steps,
              "steps of the cycle; else epochs * steps_per_epoch, else the steps of the fit")
            .check([](const auto& n) { return !n || *n >= 1; }, ">= 1"),
        field("epochs", &OneCycleLROptions::epochs, "epochs of the cycle")
            .check([](const auto& n) { return !n || *n >= 1; }, ">= 1"),
        field("steps_per_epoch", &OneCycleLROptions::steps_per_epoch, "steps of an epoch")
            .check([](const auto& n) { return !n || *n >= 1; }, ">= 1"),
        field("pct_start", &OneCycleLROptions::pct_start, "fraction of the cycle in which lr rises").min(0.0).max(1.0),
        field("anneal_strategy", &OneCycleLROptions::anneal_strategy, "shape of rise and fall"),
        field("cycle_momentum", &OneCycleLROptions::cycle_momentum, "move momentum (or beta1) against lr"),
        field("base_momentum", &OneCycleLROptions::base_momentum, "momentum at the peak of lr"),
        field("max_momentum", &OneCycleLROptions::max_momentum, "momentum at both ends"),
        field("div_factor", &OneCycleLROptions::div_factor, "lr starts at max_lr / div_factor").above(0.0),
        field("final_div_factor", &OneCycleLROptions::final_div_factor, "lr ends at its start / final_div_factor")
            .above(0.0),
        field("three_phase", &OneCycleLROptions::three_phase, "fall to the start first, then to the end"));
  }
};

extern template class SchedulerOf<OneCycleLROptions>;

/// One rise to max_lr and one fall far below the start (Smith, Topin 2017). PyTorch's OneCycleLR. Step once per batch.
/// In a Trainer the length may be unset: it is then the number of steps of the fit. attach() throws ConfigError if the
/// length is not known, and Error if cycle_momentum is set and the optimizer has no momentum; step() throws Error after
/// the end of the cycle.
class OneCycleLR final : public SchedulerOf<OneCycleLROptions> {
 public:
  using SchedulerOf::SchedulerOf;
  OneCycleLR() = default;
  OneCycleLR(Optimizer& optimizer, OneCycleLROptions options) : SchedulerOf(std::move(options)) { attach(optimizer); }
  [[nodiscard]] bool wants_total_steps() const override {
    return !options_.total_steps && !options_.epochs && !options_.steps_per_epoch;
  }
  void fill_total_steps(int64_t steps) override { options_.total_steps = steps; }

 private:
  void prepare() override;
  std::vector<double> next_lr() override;
  [[nodiscard]] int64_t total_steps() const;

  int64_t total_steps_ = 0;
  std::vector<double> max_lrs_, base_momentums_, max_momentums_;
};

/// Options of CyclicLR; names and defaults are PyTorch's.
struct CyclicLROptions {
  static constexpr const char* kName = "CyclicLR";

  std::optional<FloatOrList> base_lr = {};
  FloatOrList max_lr = 0.0;
  int64_t step_size_up = 2000;
  std::optional<int64_t> step_size_down = {};
  EnumOption<CyclicMode> mode = CyclicMode::triangular;
  double gamma = 1.0;
  EnumOption<ScaleMode> scale_mode = ScaleMode::cycle;
  bool cycle_momentum = true;
  FloatOrList base_momentum = 0.8;
  FloatOrList max_momentum = 0.9;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("base_lr", &CyclicLROptions::base_lr, "lower end of lr; one, or one per group")
            .check([](const auto& value) { return value.has_value(); }, "set"),
        field("max_lr", &CyclicLROptions::max_lr, "upper end of lr; one, or one per group")
            .check([](const FloatOrList& value) { return detail::all_above(value, 0); }, "set, and > 0"),
        field("step_size_up", &CyclicLROptions::step_size_up, "steps of a rise").min(1),
        field("step_size_down", &CyclicLROptions::step_size_down, "steps of a fall; null: as step_size_up")
            .check([](const auto& n) { return !n || *n >= 1; }, ">= 1"),
        field("mode", &CyclicLROptions::mode,
              "how the height changes: stays, halves each cycle, or shrinks by gamma each step"),
        field("gamma", &CyclicLROptions::gamma, "factor per step of exp_range"),
        field("scale_mode", &CyclicLROptions::scale_mode,
              "argument of a function (scale_fn); the modes have their own"),
        field("cycle_momentum", &CyclicLROptions::cycle_momentum, "move momentum (or beta1) against lr"),
        field("base_momentum", &CyclicLROptions::base_momentum, "momentum at the top of lr"),
        field("max_momentum", &CyclicLROptions::max_momentum, "momentum at the bottom of lr"));
  }
};

extern template class SchedulerOf<CyclicLROptions>;

/// A cycle of lr between base_lr and max_lr (Smith 2015). PyTorch's CyclicLR. Step once per batch. attach() throws
/// Error if cycle_momentum is set and the optimizer has no momentum.
class CyclicLR final : public SchedulerOf<CyclicLROptions> {
 public:
  using SchedulerOf::SchedulerOf;
  CyclicLR() = default;
  CyclicLR(Optimizer& optimizer, CyclicLROptions options) : SchedulerOf(std::move(options)) { attach(optimizer); }

  /// PyTorch's scale_fn: the height at a cycle (from 1) or a step, 0 to 1, instead of `mode`.
  using ScaleFn = std::function<double(double)>;
  CyclicLR(CyclicLROptions options, ScaleFn scale_fn) : CyclicLR(std::move(options)) {
    scale_fn_ = std::move(scale_fn);
  }

 private:
  void prepare() override;
  std::vector<double> next_lr() override;
  [[nodiscard]] double height(double cycle) const;

  ScaleFn scale_fn_;
  std::vector<double> max_lrs_, base_momentums_, max_momentums_;
};

}  // namespace levin
