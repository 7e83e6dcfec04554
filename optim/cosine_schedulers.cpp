#include "levin/optim/cosine_schedulers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace levin {

template class SchedulerOf<CosineAnnealingLROptions>;
template class SchedulerOf<CosineAnnealingWarmRestartsOptions>;
template class SchedulerOf<CosineWithWarmupOptions>;

namespace {

// 2 at the start of a period, 0 at its end.
double one_plus_cos(int64_t step, int64_t period) {
  return 1 + std::cos(std::numbers::pi * static_cast<double>(step) / static_cast<double>(period));
}

std::vector<double> along_cosine(std::vector<double> lrs, double eta_min, double one_plus_cosine) {
  for (auto& lr : lrs) lr = eta_min + (lr - eta_min) * one_plus_cosine / 2;
  return lrs;
}

}  // namespace

std::vector<double> CosineAnnealingLR::next_lr() {
  std::vector<double> lrs = scaled(1);
  if (is_initial_) return lrs;
  const auto& [period, eta_min] = options_;
  if ((last_epoch - 1 - period) % (2 * period) == 0) {  // the step before was at eta_min: the ratio below is 0 / 0
    const double rise = (2 - one_plus_cos(1, period)) / 2;
    for (size_t i = 0; i < std::min(lrs.size(), base_lrs_.size()); ++i) lrs[i] += (base_lrs_[i] - eta_min) * rise;
    return lrs;
  }
  const double ratio = one_plus_cos(last_epoch, period) / one_plus_cos(last_epoch - 1, period);
  for (auto& lr : lrs) lr = ratio * (lr - eta_min) + eta_min;
  return lrs;
}

std::vector<double> CosineAnnealingLR::closed_form() {
  return along_cosine(base_lrs_, options_.eta_min, one_plus_cos(last_epoch, options_.T_max));
}

void CosineAnnealingWarmRestarts::prepare() {
  t_cur_ = -1;
  t_i_ = options_.T_0;
}

std::vector<double> CosineAnnealingWarmRestarts::next_lr() {
  return along_cosine(base_lrs_, options_.eta_min, one_plus_cos(t_cur_, t_i_));
}

void CosineAnnealingWarmRestarts::advance(std::optional<double>) {
  if (last_epoch < 0) {
    last_epoch = 0;
    t_cur_ = 0;
    t_i_ = options_.T_0;
  } else {
    ++last_epoch;
    ++t_cur_;
    if (t_cur_ >= t_i_) {
      t_cur_ -= t_i_;
      t_i_ *= options_.T_mult;
    }
  }
  apply(next_lr());
}

State CosineAnnealingWarmRestarts::state_dict() const {
  State state = LRScheduler::state_dict();
  state.set("T_cur", t_cur_);
  state.set("T_i", t_i_);
  return state;
}

void CosineAnnealingWarmRestarts::load_state_dict(const State& saved) {
  const auto t_cur = saved.get<int64_t>("T_cur");
  const auto t_i = saved.get<int64_t>("T_i");
  LRScheduler::load_state_dict(saved);
  t_cur_ = t_cur;
  t_i_ = t_i;
}

void CosineWithWarmup::prepare() {
  const int64_t total = options_.total_steps.value_or(total_steps_);
  if (total == 0) {
    throw ConfigError(
        "CosineWithWarmup.total_steps: it is unset, and the number of steps is not known here. Set it, or let the "
        "Trainer attach the scheduler.");
  }
  const auto* share = std::get_if<Period>(&options_.warmup);
  warmup_ = share != nullptr ? std::llround(share->amount() * static_cast<double>(total))
                             : std::get<int64_t>(options_.warmup);
  if (warmup_ > total) {
    throw ConfigError("CosineWithWarmup.warmup: " + std::to_string(warmup_) + " is more than the " +
                      std::to_string(total) +
                      " times that the schedule moves: after each optimizer step, or after each epoch with interval: "
                      "epoch. Shorten it, or write a share such as 0.05dur.");
  }
  total_steps_ = total;
}

std::vector<double> CosineWithWarmup::next_lr() {
  std::vector<double> lrs = base_lrs_;
  if (last_epoch < warmup_) {
    const double way = static_cast<double>(last_epoch) / static_cast<double>(warmup_);
    for (auto& lr : lrs) lr *= options_.start_factor + (1 - options_.start_factor) * way;
    return lrs;
  }
  const int64_t period = std::max<int64_t>(1, total_steps_ - warmup_);
  return along_cosine(std::move(lrs), options_.eta_min, one_plus_cos(std::min(last_epoch - warmup_, period), period));
}

}  // namespace levin
