#include "levin/optim/cyclic_schedulers.h"

#include <numbers>

#include "levin/core/options/error.h"

namespace levin {

template class SchedulerOf<OneCycleLROptions>;
template class SchedulerOf<CyclicLROptions>;

namespace {

void need_momentum(const Optimizer& optimizer, const std::string& name) {
  for (const auto& group : optimizer.param_groups()) {
    if (group.has_momentum) continue;
    throw Error(name + ".cycle_momentum: " + optimizer.name() +
                " has neither momentum nor betas to cycle. Set cycle_momentum to false.");
  }
}

double anneal(AnnealStrategy strategy, double start, double end, double done) {
  if (strategy == AnnealStrategy::linear) return (end - start) * done + start;
  return end + (start - end) / 2 * (std::cos(std::numbers::pi * done) + 1);
}

}  // namespace

namespace detail {
bool all_above(const FloatOrList& value, double low) {
  if (const double* number = std::get_if<double>(&value)) return *number > low;
  const auto& list = std::get<std::vector<double>>(value);
  return !list.empty() && std::all_of(list.begin(), list.end(), [&](double number) { return number > low; });
}
}  // namespace detail

int64_t OneCycleLR::total_steps() const {
  if (options_.total_steps) return *options_.total_steps;
  if (options_.epochs && options_.steps_per_epoch) return *options_.epochs * *options_.steps_per_epoch;
  throw ConfigError(
      "OneCycleLROptions.total_steps: the length of the cycle is not known. "
      "Set total_steps, or both epochs and steps_per_epoch (a Trainer fills it in where it moves the scheduler "
      "itself).");
}

void OneCycleLR::prepare() {
  total_steps_ = total_steps();
  max_lrs_ = per_group(options_.max_lr, "max_lr");
  if (options_.cycle_momentum) {
    need_momentum(optimizer(), name());
    base_momentums_ = per_group(options_.base_momentum, "base_momentum");
    max_momentums_ = per_group(options_.max_momentum, "max_momentum");
  }
  auto& groups = optimizer().param_groups();
  for (size_t i = 0; i < groups.size(); ++i) groups[i].initial_lr = max_lrs_[i] / options_.div_factor;
  base_lrs_ = fix_initial_lrs();
}

std::vector<double> OneCycleLR::next_lr() {
  if (last_epoch > total_steps_) {
    throw Error("OneCycleLR: stepped " + count_of(last_epoch, "time") + ", but the cycle has " +
                count_of(total_steps_, "step") + ". Set total_steps to the number of optimizer steps of the run.");
  }
  // Ends of the phases, in steps; the last phase also covers later steps.
  const double total = static_cast<double>(total_steps_);
  const double peak = options_.pct_start * total - 1;
  const double valley = options_.three_phase ? 2 * options_.pct_start * total - 2 : total - 1;
  const double now = static_cast<double>(last_epoch);
  const int phase = now <= peak ? 0 : (now <= valley || !options_.three_phase ? 1 : 2);
  const double start = phase == 0 ? 0 : (phase == 1 ? peak : valley);
  const double end = phase == 0 ? peak : (phase == 1 ? valley : total - 1);
  const double done = (now - start) / (end - start);

  auto& groups = optimizer().param_groups();
  std::vector<double> lrs;
  for (size_t i = 0; i < std::min(groups.size(), max_lrs_.size()); ++i) {
    const double initial = base_lrs_[i];
    const double lowest = initial / options_.final_div_factor;
    const double ends[] = {initial, max_lrs_[i], options_.three_phase ? initial : lowest, lowest};
    lrs.push_back(anneal(options_.anneal_strategy, ends[phase], ends[phase + 1], done));
    if (!options_.cycle_momentum) continue;
    const double momentums[] = {max_momentums_[i], base_momentums_[i], max_momentums_[i], max_momentums_[i]};
    groups[i].momentum = anneal(options_.anneal_strategy, momentums[phase], momentums[phase + 1], done);
  }
  return lrs;
}

void CyclicLR::prepare() {
  base_lrs_ = per_group(*options_.base_lr, "base_lr");
  max_lrs_ = per_group(options_.max_lr, "max_lr");
  if (!options_.cycle_momentum) return;
  need_momentum(optimizer(), name());
  base_momentums_ = per_group(options_.base_momentum, "base_momentum");
  max_momentums_ = per_group(options_.max_momentum, "max_momentum");
}

double CyclicLR::height(double cycle) const {
  if (scale_fn_) {
    return scale_fn_(options_.scale_mode == ScaleMode::cycle ? cycle : static_cast<double>(last_epoch));
  }
  switch (options_.mode) {
    case CyclicMode::triangular: return 1;
    case CyclicMode::triangular2: return std::exp2(1 - cycle);
    case CyclicMode::exp_range: return std::pow(options_.gamma, static_cast<double>(last_epoch));
  }
  return 1;
}

std::vector<double> CyclicLR::next_lr() {
  const auto up = static_cast<double>(options_.step_size_up);
  const double total = up + static_cast<double>(options_.step_size_down.value_or(options_.step_size_up));
  const double turn = up / total;  // the share of a cycle at which lr turns
  const double cycles = static_cast<double>(last_epoch) / total;
  const double cycle = std::floor(1 + cycles);
  const double x = 1 + cycles - cycle;
  const double share = (x <= turn ? x / turn : (x - 1) / (turn - 1)) * height(cycle);

  auto& groups = optimizer().param_groups();
  std::vector<double> lrs;
  for (size_t i = 0; i < std::min(groups.size(), max_lrs_.size()); ++i) {
    lrs.push_back(base_lrs_[i] + (max_lrs_[i] - base_lrs_[i]) * share);
    if (options_.cycle_momentum) {
      groups[i].momentum = max_momentums_[i] - (max_momentums_[i] - base_momentums_[i]) * share;
    }
  }
  return lrs;
}

}  // namespace levin
