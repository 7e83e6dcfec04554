// Schedulers along a cosine.
//
//   CosineAnnealingLR scheduler(optimizer, {.T_max = 100, .eta_min = 1e-5});
//   CosineWithWarmup scheduler(optimizer, {.warmup = 50, .total_steps = 1000});
#pragma once

#include <optional>
#include <variant>

#include "levin/core/options/units.h"
#include "levin/optim/lr_scheduler.h"

namespace levin {

/// Options of CosineAnnealingLR; names and defaults are PyTorch's.
struct CosineAnnealingLROptions {
  static constexpr const char* kName = "CosineAnnealingLR";

  int64_t T_max = 0;
  double eta_min = 0;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("T_max", &CosineAnnealingLROptions::T_max, "steps from the initial lr to eta_min").min(1),
        field("eta_min", &CosineAnnealingLROptions::eta_min, "lowest lr"));
  }
};

extern template class SchedulerOf<CosineAnnealingLROptions>;

/// Half a cosine from the initial lr down to eta_min, and back up if stepped further (SGDR, Loshchilov, Hutter 2016,
/// without restarts). PyTorch's CosineAnnealingLR.
class CosineAnnealingLR final : public SchedulerOf<CosineAnnealingLROptions> {
 public:
  using SchedulerOf::SchedulerOf;
  CosineAnnealingLR() = default;
  CosineAnnealingLR(Optimizer& optimizer, CosineAnnealingLROptions options) : SchedulerOf(std::move(options)) {
    attach(optimizer);
  }

 private:
  std::vector<double> next_lr() override;
  std::vector<double> closed_form() override;
};

/// Options of CosineAnnealingWarmRestarts; names and defaults are PyTorch's.
struct CosineAnnealingWarmRestartsOptions {
  static constexpr const char* kName = "CosineAnnealingWarmRestarts";

  int64_t T_0 = 0;
  int64_t T_mult = 1;
  double eta_min = 0;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("T_0", &CosineAnnealingWarmRestartsOptions::T_0, "steps until the first restart").min(1),
        field("T_mult", &CosineAnnealingWarmRestartsOptions::T_mult, "factor of the period after each restart").min(1),
        field("eta_min", &CosineAnnealingWarmRestartsOptions::eta_min, "lowest lr"));
  }
};

extern template class SchedulerOf<CosineAnnealingWarmRestartsOptions>;

/// A cosine that restarts after T_0 steps, then after T_0 * T_mult, … (SGDR, Loshchilov, Hutter 2016). PyTorch's
/// CosineAnnealingWarmRestarts.
class CosineAnnealingWarmRestarts final : public SchedulerOf<CosineAnnealingWarmRestartsOptions> {
 public:
  using SchedulerOf::SchedulerOf;
  CosineAnnealingWarmRestarts() = default;
  CosineAnnealingWarmRestarts(Optimizer& optimizer, CosineAnnealingWarmRestartsOptions options)
      : SchedulerOf(std::move(options)) {
    attach(optimizer);
  }
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;

 private:
  void prepare() override;
  std::vector<double> next_lr() override;
  void advance(std::optional<double> metric) override;

  int64_t t_cur_ = -1;  // steps since the restart
  int64_t t_i_ = 0;     // steps of this period
};

/// A number of steps, or a fraction of all steps.
using StepsOrShare = std::variant<int64_t, Period>;

/// Options of CosineWithWarmup.
struct CosineWithWarmupOptions {
  static constexpr const char* kName = "CosineWithWarmup";

  StepsOrShare warmup = Period("0.05dur");
  double start_factor = 0.01;
  double eta_min = 0;
  std::optional<int64_t> total_steps = {};

  template <class = void>
  static auto fields() {
    using O = CosineWithWarmupOptions;
    return levin::fields(
        field("warmup", &O::warmup, "steps in which lr rises, or as a fraction of all steps: 500, or 0.05dur")
            .check(
                [](const StepsOrShare& value) {
                  if (const auto* steps = std::get_if<int64_t>(&value)) return *steps >= 0;
                  return std::get<Period>(value).unit() == PeriodUnit::run;
                },
                "a number of steps >= 0, or a fraction of the run such as 0.05dur"),
        field("start_factor", &O::start_factor, "fraction of lr at the first step").min(0.0).max(1.0),
        field("eta_min", &O::eta_min, "lr at the end"),
        field("total_steps", &O::total_steps, "steps until the end; null: the number of steps of the fit")
            .check([](const auto& steps) { return !steps || *steps >= 1; }, ">= 1"));
  }
};

extern template class SchedulerOf<CosineWithWarmupOptions>;

/// A line up to the initial lr, then half a cosine down to eta_min that ends with the run; lr stays there. A trainer
/// moves it after each optimizer step unless `interval` says otherwise: its warm-up may be shorter than an epoch.
/// attach() throws ConfigError if the number of steps is not known, or the warm-up is longer.
class CosineWithWarmup final : public SchedulerOf<CosineWithWarmupOptions> {
 public:
  using SchedulerOf::SchedulerOf;
  CosineWithWarmup() = default;
  CosineWithWarmup(Optimizer& optimizer, CosineWithWarmupOptions options) : SchedulerOf(std::move(options)) {
    attach(optimizer);
  }
  [[nodiscard]] bool counts_steps() const override { return true; }
  [[nodiscard]] bool wants_total_steps() const override { return !options_.total_steps.has_value(); }
  void fill_total_steps(int64_t steps) override { total_steps_ = steps; }

 private:
  /// Throws ConfigError if the number of steps is not known, or the warm-up is longer.
  void prepare() override;
  std::vector<double> next_lr() override;
  int64_t total_steps_ = 0;  // 0: not known
  int64_t warmup_ = 0;       // steps
};

}  // namespace levin
