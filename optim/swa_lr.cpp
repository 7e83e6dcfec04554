#include "levin/optim/swa_lr.h"

#include <algorithm>
#include <numbers>

namespace levin {

template class SchedulerOf<SWALROptions>;

// It starts from the present rates, which another scheduler may have moved: its state keeps them. PyTorch: the
// configured ones.
void SWALR::prepare() {
  swa_lrs_ = per_group(options_.swa_lr, "swa_lr");
  base_lrs_ = scaled(1);
}

double SWALR::way_done(int64_t step) const {
  const auto total = static_cast<double>(std::max<int64_t>(1, options_.anneal_epochs));
  const double share = std::clamp(static_cast<double>(step) / total, 0.0, 1.0);
  if (options_.anneal_strategy == AnnealStrategy::linear) return share;
  return (1 - std::cos(std::numbers::pi * share)) / 2;
}

// From lr at the step before, as in PyTorch: other changes of lr in between keep their effect.
std::vector<double> SWALR::next_lr() {
  const int64_t step = options_.anneal_epochs == 0 ? std::max<int64_t>(1, last_epoch) : last_epoch;
  const double before = way_done(step - 1);
  const double now = way_done(step);
  std::vector<double> lrs = scaled(1);
  for (size_t i = 0; i < std::min(lrs.size(), swa_lrs_.size()); ++i) {
    const double start = before == 1 ? swa_lrs_[i] : (lrs[i] - before * swa_lrs_[i]) / (1 - before);
    lrs[i] = swa_lrs_[i] * now + start * (1 - now);
  }
  return lrs;
}

}  // namespace levin
