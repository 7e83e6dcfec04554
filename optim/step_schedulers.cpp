#include "levin/optim/step_schedulers.h"

#include "levin/core/options/error.h"

namespace levin {

template class SchedulerOf<StepLROptions>;
template class SchedulerOf<MultiStepLROptions>;
template class SchedulerOf<ConstantLROptions>;
template class SchedulerOf<LinearLROptions>;
template class SchedulerOf<ExponentialLROptions>;
template class SchedulerOf<PolynomialLROptions>;

namespace {

std::vector<double> times(std::vector<double> lrs, double factor) {
  for (auto& lr : lrs) lr *= factor;
  return lrs;
}

}  // namespace

std::vector<double> StepLR::next_lr() {
  return scaled(last_epoch == 0 || last_epoch % options_.step_size != 0 ? 1 : options_.gamma);
}

std::vector<double> StepLR::closed_form() {
  return times(base_lrs_, std::pow(options_.gamma, last_epoch / options_.step_size));
}

std::vector<double> MultiStepLR::next_lr() {
  const auto& steps = options_.milestones;
  return scaled(std::pow(options_.gamma, std::count(steps.begin(), steps.end(), last_epoch)));
}

std::vector<double> MultiStepLR::closed_form() {
  const auto& steps = options_.milestones;
  const auto passed = std::upper_bound(steps.begin(), steps.end(), last_epoch) - steps.begin();
  return times(base_lrs_, std::pow(options_.gamma, passed));
}

std::vector<double> ConstantLR::next_lr() {
  if (last_epoch == 0) return scaled(options_.factor);
  return scaled(last_epoch == options_.total_iters ? 1 / options_.factor : 1);
}

std::vector<double> ConstantLR::closed_form() {
  return times(base_lrs_, last_epoch >= options_.total_iters ? 1 : options_.factor);
}

std::vector<double> LinearLR::next_lr() {
  const auto& [start, end, total_iters] = options_;
  if (last_epoch == 0) return scaled(start);
  if (is_initial_ || last_epoch > total_iters) return scaled(1);
  const auto total = static_cast<double>(total_iters);
  return scaled(1 + (end - start) / (total * start + static_cast<double>(last_epoch - 1) * (end - start)));
}

std::vector<double> LinearLR::closed_form() {
  const auto& [start, end, total_iters] = options_;
  const auto done = static_cast<double>(std::min(total_iters, last_epoch));
  return times(base_lrs_, start + (end - start) * done / static_cast<double>(total_iters));
}

std::vector<double> ExponentialLR::next_lr() {
  return scaled(is_initial_ ? 1 : options_.gamma);
}

std::vector<double> ExponentialLR::closed_form() {
  return times(base_lrs_, std::pow(options_.gamma, last_epoch));
}

std::vector<double> PolynomialLR::next_lr() {
  if (is_initial_ || last_epoch > options_.total_iters) return scaled(1);
  const auto total = static_cast<double>(options_.total_iters);
  const auto step = static_cast<double>(last_epoch);
  return scaled(std::pow((1 - step / total) / (1 - (step - 1) / total), options_.power));
}

std::vector<double> PolynomialLR::closed_form() {
  const auto done = static_cast<double>(std::min(options_.total_iters, last_epoch));
  return times(base_lrs_, std::pow(1 - done / static_cast<double>(options_.total_iters), options_.power));
}

void LambdaLR::prepare() {
  const size_t groups = optimizer().param_groups().size();
  if (!is_shared_ && lambdas_.size() != groups) {
    throw Error("LambdaLR: got " + count_of(lambdas_.size(), "function") + ", but " + optimizer().name() + " has " +
                count_of(groups, "parameter group") + ". Give one function, or one per group.");
  }
}

std::vector<double> LambdaLR::next_lr() {
  std::vector<double> lrs;
  for (size_t i = 0; i < base_lrs_.size(); ++i) {
    lrs.push_back(base_lrs_[i] * lambdas_[is_shared_ ? 0 : i](last_epoch));
  }
  return lrs;
}

}  // namespace levin
