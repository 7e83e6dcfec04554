#include "levin/optim/reduce_lr_on_plateau.h"

#include <cmath>
#include <limits>

namespace levin {

template class SchedulerOf<ReduceLROnPlateauOptions>;

void ReduceLROnPlateau::begin() {
  const double worst = std::numeric_limits<double>::infinity();
  min_lrs_ = per_group(options_.min_lr, "min_lr");
  base_lrs_ = fix_initial_lrs();
  last_epoch = 0;
  best_ = options_.mode == PlateauMode::min ? worst : -worst;
  num_bad_epochs_ = 0;
  cooldown_counter_ = 0;
  note_lrs();
}

std::vector<double> ReduceLROnPlateau::next_lr() {
  return scaled(1);
}

// The first metric is always an improvement, also with a threshold above 1.
// PyTorch: the factor does not depend on the sign, so a negative metric that stays the same improves in each step.
bool ReduceLROnPlateau::is_better(double metric) const {
  const double sign = options_.mode == PlateauMode::min ? -1 : 1;
  const double away_from_0 = best_ < 0 ? -sign : sign;
  const bool relative = options_.threshold_mode == ThresholdMode::rel;
  if (std::isinf(best_)) return options_.mode == PlateauMode::min ? metric < best_ : metric > best_;
  const double bar = relative ? best_ * (1 + away_from_0 * options_.threshold) : best_ + sign * options_.threshold;
  return options_.mode == PlateauMode::min ? metric < bar : metric > bar;
}

void ReduceLROnPlateau::advance(std::optional<double> metric) {
  static_cast<void>(optimizer());
  if (!metric) {
    throw Error(
        "ReduceLROnPlateau: step() needs the metric to follow. Call step(metric), or set the scheduler's "
        "monitor in the trainer.");
  }
  ++last_epoch;
  if (is_better(*metric)) {
    best_ = *metric;
    num_bad_epochs_ = 0;
  } else {
    ++num_bad_epochs_;
  }
  if (cooldown_counter_ > 0) {
    --cooldown_counter_;
    num_bad_epochs_ = 0;
  }
  if (num_bad_epochs_ > options_.patience) {
    reduce();
    cooldown_counter_ = options_.cooldown;
    num_bad_epochs_ = 0;
  }
  note_lrs();
}

void ReduceLROnPlateau::reduce() {
  auto& groups = optimizer().param_groups();
  if (min_lrs_.size() != groups.size()) min_lrs_ = per_group(options_.min_lr, "min_lr");  // a group was added
  for (size_t i = 0; i < groups.size(); ++i) {
    const double lr = std::max(groups[i].lr * options_.factor, min_lrs_[i]);
    if (groups[i].lr - lr > options_.eps) groups[i].lr = lr;
  }
}

State ReduceLROnPlateau::state_dict() const {
  State state = LRScheduler::state_dict();
  state.set("best", best_);
  state.set("num_bad_epochs", num_bad_epochs_);
  state.set("cooldown_counter", cooldown_counter_);
  return state;
}

void ReduceLROnPlateau::load_state_dict(const State& saved) {
  const auto best = saved.get<double>("best");
  const auto num_bad_epochs = saved.get<int64_t>("num_bad_epochs");
  const auto cooldown_counter = saved.get<int64_t>("cooldown_counter");
  LRScheduler::load_state_dict(saved);
  best_ = best;
  num_bad_epochs_ = num_bad_epochs;
  cooldown_counter_ = cooldown_counter;
}

}  // namespace levin
