// The schedule of stochastic weight averaging: lr changes to a constant and stays there.
//
//   SWALR scheduler(optimizer, {.swa_lr = 0.05, .anneal_epochs = 10});
#pragma once

#include "levin/optim/cyclic_schedulers.h"

namespace levin {

/// Options of SWALR; names and defaults are PyTorch's.
struct SWALROptions {
  static constexpr const char* kName = "SWALR";

  FloatOrList swa_lr = 0.0;
  int64_t anneal_epochs = 10;  // steps of the scheduler; 0: swa_lr at once
  EnumOption<AnnealStrategy> anneal_strategy = AnnealStrategy::cos;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("swa_lr", &SWALROptions::swa_lr, "where lr ends; one, or one per group")
            .check([](const FloatOrList& value) { return detail::all_above(value, 0); }, "set, and > 0"),
        field("anneal_epochs", &SWALROptions::anneal_epochs, "steps from lr to swa_lr; 0: at once").min(0),
        field("anneal_strategy", &SWALROptions::anneal_strategy, "along half a cosine or a line"));
  }
};

extern template class SchedulerOf<SWALROptions>;

/// A transition of each group's lr to swa_lr in anneal_epochs steps, from its value when the scheduler is attached.
/// PyTorch's SWALR.
class SWALR final : public SchedulerOf<SWALROptions> {
 public:
  using SchedulerOf::SchedulerOf;
  SWALR() = default;
  SWALR(Optimizer& optimizer, SWALROptions options) : SchedulerOf(std::move(options)) { attach(optimizer); }

 private:
  void prepare() override;
  std::vector<double> next_lr() override;
  /// Returns the progress from lr to swa_lr after `step` steps, 0 to 1.
  [[nodiscard]] double way_done(int64_t step) const;
  std::vector<double> swa_lrs_;  // one per group
};

}  // namespace levin
