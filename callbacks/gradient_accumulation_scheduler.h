// Changes accumulate_grad_batches at given epochs.
//
//   .callbacks = {levin::GradientAccumulationScheduler({.scheduling = {{0, 8}, {4, 4}, {8, 1}}})}
#pragma once

#include <map>

#include "levin/core/options/fields.h"
#include "levin/trainer/accumulation_schedule.h"
#include "levin/trainer/callback.h"

namespace levin {

/// Options of GradientAccumulationScheduler.
struct GradientAccumulationSchedulerOptions {
  std::map<int64_t, int64_t> scheduling = {};  // first epoch -> batches; 1 before the first key

  template <class = void>
  static auto fields() {
    using O = GradientAccumulationSchedulerOptions;
    using Map = std::map<int64_t, int64_t>;
    return levin::fields(
        field("scheduling", &O::scheduling, "batches per optimizer step, by the first epoch (from 0) they apply to")
            .not_empty()
            .check([](const Map& m) { return m.empty() || m.begin()->first >= 0; }, "given for epochs >= 0")
            .check(
                [](const Map& m) {
                  for (const auto& [epoch, batches] : m) {
                    if (batches < 1) return false;
                  }
                  return true;
                },
                "at least 1 batch for every epoch"));
  }
};

/// A callback that sets accumulate_grad_batches at the start of each epoch, on every rank.
class GradientAccumulationScheduler final : public Callback, public AccumulationSchedule {
 public:
  using Options = GradientAccumulationSchedulerOptions;
  explicit GradientAccumulationScheduler(GradientAccumulationSchedulerOptions options);

  /// Throws ConfigError if the trainer accumulates too, or with manual optimization.
  void on_train_start(Trainer& trainer, LightningModule& module) override;
  void on_train_epoch_start(Trainer& trainer, LightningModule&) override;

  [[nodiscard]] int64_t factor(int64_t epoch) const override;

 private:
  GradientAccumulationSchedulerOptions options_;
};

}  // namespace levin
