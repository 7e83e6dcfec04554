// Schedulers along a cosine.
//
//   CosineAnnealingLR scheduler(optimizer, {.T_max = 100, .eta_min = 1e-5});
#pragma once

#include "levin/optim/lr_scheduler.h"

namespace levin {

struct CosineAnnealingLROptions {
  int64_t T_max = 0;
  double eta_min = 0;

  static auto fields() {
    return levin::fields(
        field("T_max", &CosineAnnealingLROptions::T_max, "steps from the initial lr to eta_min").min(1),
        field("eta_min", &CosineAnnealingLROptions::eta_min, "lowest lr"));
  }
};

/// Decreases lr to eta_min along half a cosine, and increases it again if stepped further.
class CosineAnnealingLR final : public LRScheduler {
 public:
  using Options = CosineAnnealingLROptions;

  /// Attached later.
  explicit CosineAnnealingLR(CosineAnnealingLROptions options = {})
      : options_(checked(std::move(options), "CosineAnnealingLROptions")) {}
  CosineAnnealingLR(Optimizer& optimizer, CosineAnnealingLROptions options) : CosineAnnealingLR(std::move(options)) {
    attach(optimizer);
  }

  [[nodiscard]] std::string name() const override { return "CosineAnnealingLR"; }
  [[nodiscard]] ConfigNode written_options() const override { return write_options(options_); }

 private:
  std::vector<double> next_lr() override;
  std::vector<double> closed_form() override;

  CosineAnnealingLROptions options_;
};

struct CosineAnnealingWarmRestartsOptions {
  int64_t T_0 = 0;
  int64_t T_mult = 1;
  double eta_min = 0;

  static auto fields() {
    return levin::fields(
        field("T_0", &CosineAnnealingWarmRestartsOptions::T_0, "steps until the first restart").min(1),
        field("T_mult", &CosineAnnealingWarmRestartsOptions::T_mult, "factor of the period after each restart").min(1),
        field("eta_min", &CosineAnnealingWarmRestartsOptions::eta_min, "lowest lr"));
  }
};

/// A cosine that restarts after T_0 steps, then after T_0 * T_mult, … (SGDR, Loshchilov, Hutter 2016).
class CosineAnnealingWarmRestarts final : public LRScheduler {
 public:
  using Options = CosineAnnealingWarmRestartsOptions;

  /// Attached later.
  explicit CosineAnnealingWarmRestarts(CosineAnnealingWarmRestartsOptions options = {})
      : options_(checked(std::move(options), "CosineAnnealingWarmRestartsOptions")) {}
  CosineAnnealingWarmRestarts(Optimizer& optimizer, CosineAnnealingWarmRestartsOptions options)
      : CosineAnnealingWarmRestarts(std::move(options)) {
    attach(optimizer);
  }

  [[nodiscard]] std::string name() const override { return "CosineAnnealingWarmRestarts"; }
  [[nodiscard]] ConfigNode written_options() const override { return write_options(options_); }
  [[nodiscard]] State state() const override;
  void load_state(const State& saved) override;

 private:
  void prepare() override;
  std::vector<double> next_lr() override;
  void advance(std::optional<double> metric) override;

  int64_t t_cur_ = -1;  // steps since the restart
  int64_t t_i_ = 0;     // steps of this period

  CosineAnnealingWarmRestartsOptions options_;
};

}  // namespace levin
