#include "levin/trainer/plan/resolve_period.h"

#include <algorithm>

#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr const char* kInterval = "TrainerOptions.val_check_interval";

// Expresses the period by Lightning's options if possible; periods of time and of the run are kept.
void use_period(const Period& period, const TrainerOptions& options, RunPlan& plan, Problems& problems) {
  if (options.check_val_every_n_epoch.value_or(1) != 1) {
    problems.add({}, kInterval,
                 period.text() + " and check_val_every_n_epoch: " + std::to_string(*options.check_val_every_n_epoch) +
                     " exclude each other: a period counts across epochs. Drop one of the two.");
    return;
  }
  switch (period.unit()) {
    case PeriodUnit::batches:
      plan.val_check_interval = static_cast<int64_t>(period.amount());
      plan.check_val_every_n_epoch.reset();
      return;
    case PeriodUnit::epochs:
      plan.check_val_every_n_epoch = std::max<int64_t>(1, period.whole_epochs());
      plan.val_check_interval = period.whole_epochs() > 0 ? 1.0 : period.amount();
      return;
    default: break;
  }
  plan.check_val_every_n_epoch = 1;
  try {
    plan.val_check_interval = resolve_period(period, options, plan, kInterval);
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems()) problems.add({}, "", problem);
  }
}

}  // namespace

void resolve_validation(const TrainerOptions& options, RunPlan& plan, Problems& problems) {
  plan.check_val_every_n_epoch = options.check_val_every_n_epoch;
  plan.val_check_interval = options.val_check_interval.value_or(1.0);
  if (const auto* period = std::get_if<Period>(&plan.val_check_interval)) {
    return use_period(Period(*period), options, plan, problems);
  }
  const auto* share = std::get_if<double>(&plan.val_check_interval);
  if (share == nullptr || plan.check_val_every_n_epoch) return;
  problems.add({}, kInterval,
               "a share of an epoch (" + number_text(*share) +
                   ") cannot be counted across epochs. Use a number of batches, or set check_val_every_n_epoch.");
}

Period resolve_period(const Period& period, const TrainerOptions& options, const RunPlan& plan,
                      const std::string& path) {
  const bool open_end = plan.max_steps == kUnlimited && plan.max_epochs == kUnlimited;
  if (period.unit() != PeriodUnit::run || !open_end) return period;
  if (options.max_time) return Period(*options.max_time * period.amount());
  throw ConfigError(path + ": " + period.text() +
                    " is a share of a run without an end. Set max_epochs, max_steps or max_time, or use batches "
                    "(500ba), epochs (2ep) or a time (30min).");
}

}  // namespace levin
