#include "levin/trainer/loops/validation_schedule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/trainer/run/fit_length.h"

namespace levin {

int64_t validation_interval(const RunPlan& plan, int64_t num_training_batches) {
  if (const auto* batches = std::get_if<int64_t>(&plan.val_check_interval)) {
    if (*batches > num_training_batches && plan.check_val_every_n_epoch) {
      throw ConfigError(
          "TrainerOptions.val_check_interval: " + std::to_string(*batches) + " is more than the " +
          std::to_string(num_training_batches) +
          " training batches of an epoch. Use a smaller number, or check_val_every_n_epoch: null to count "
          "batches across epochs.");
    }
    return std::max<int64_t>(1, *batches);
  }
  const auto* share = std::get_if<double>(&plan.val_check_interval);
  if (share == nullptr || *share == 1.0) return kUnlimited;  // a loader may end before its reported length
  if (num_training_batches == kUnlimited) {
    throw ConfigError("TrainerOptions.val_check_interval: a share (" + number_text(*share) +
                      ") of a loader of unknown length is not known either. Use a number of batches.");
  }
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(static_cast<double>(num_training_batches) * *share)));
}

void ValidationSchedule::use_loader() {
  if (!run_.entry.eval.loaders.empty()) interval_ = validation_interval(run_.plan, run_.fit.train.num_batches[0]);
}

bool ValidationSchedule::epoch_validates() const {
  const auto& every = run_.plan.check_val_every_n_epoch;
  return !run_.entry.eval.loaders.empty() && (!every || (run_.progress.epoch + 1) % *every == 0);
}

bool ValidationSchedule::period_is_over(const Period& period) {
  if (period.unit() != PeriodUnit::time) return completes(run_, period);
  const Seconds elapsed = std::chrono::steady_clock::now() - since_;
  return run_.strategy->ranks().any(elapsed.count() >= period.amount());  // clocks of ranks differ
}

bool ValidationSchedule::is_due(bool must_stop) {
  if (!epoch_validates()) return false;
  if (must_stop) return true;
  if (const auto* period = std::get_if<Period>(&run_.plan.val_check_interval)) return period_is_over(*period);
  const bool ends_epoch = run_.fit.epoch.last_batch || run_.fit.epoch.cut;
  if (interval_ == kUnlimited) return ends_epoch;
  if (!run_.plan.check_val_every_n_epoch) return run_.progress.total_batches % interval_ == 0;
  const int64_t batches = run_.fit.epoch.batch_idx + 1;
  if (batches % interval_ == 0 || run_.fit.epoch.cut) return true;
  if (ends_epoch && batches < interval_) warn_of_short_epoch(batches);
  return false;
}

bool ValidationSchedule::is_known_to_be_due() {
  const auto* period = std::get_if<Period>(&run_.plan.val_check_interval);
  return (period == nullptr || period->unit() != PeriodUnit::time) && is_due(/*must_stop=*/false);
}

// A loader that knows its length is checked before training.
void ValidationSchedule::warn_of_short_epoch(int64_t batches) {
  if (std::exchange(warned_, true)) return;
  Console::instance().warn("TrainerOptions.val_check_interval: epoch " + std::to_string(run_.progress.epoch) +
                           " ended after " + count_of(batches, "training batch", "training batches") +
                           ", and a validation follows every " + std::to_string(interval_) +
                           ", so none ran. Use a smaller interval, or check_val_every_n_epoch: null to count batches "
                           "across epochs.");
}

}  // namespace levin
