#include "levin/optim/lr_scheduler.h"

#include "levin/core/options/error.h"

namespace levin {

Optimizer& LRScheduler::optimizer() const {
  if (optimizer_ == nullptr) throw Error(name() + ": no optimizer is attached. Call attach(optimizer) first.");
  return *optimizer_;
}

void LRScheduler::attach(Optimizer& optimizer) {
  if (optimizer_ != nullptr) {
    throw Error(name() + ": an optimizer (" + optimizer_->name() + ") is attached already. Make a scheduler for each.");
  }
  if (optimizer.param_groups().empty()) {
    throw Error(name() + ": " + optimizer.name() + " has no parameters yet. Add them before attaching a scheduler.");
  }
  optimizer_ = &optimizer;
  try {
    begin();
  } catch (...) {
    optimizer_ = nullptr;
    throw;
  }
}

std::vector<double> LRScheduler::fix_initial_lrs() {
  std::vector<double> lrs;
  for (auto& group : optimizer().param_groups()) {
    if (!group.scheduled) group.initial_lr = group.lr;
    group.scheduled = true;
    lrs.push_back(group.initial_lr);
  }
  return lrs;
}

void LRScheduler::begin() {
  base_lrs_ = fix_initial_lrs();
  last_epoch = -1;
  prepare();
  initial_step();
}

void LRScheduler::initial_step() {
  is_initial_ = true;
  try {
    advance({});
  } catch (...) {
    is_initial_ = false;
    throw;
  }
  is_initial_ = false;
}

void LRScheduler::advance(std::optional<double>) {
  static_cast<void>(optimizer());
  ++last_epoch;
  apply(next_lr());
}

void LRScheduler::restart() {
  last_epoch = 0;
  apply(closed_form());
}

void LRScheduler::apply(const std::vector<double>& lrs) {
  auto& groups = optimizer().param_groups();
  for (size_t i = 0; i < std::min(groups.size(), lrs.size()); ++i) groups[i].lr = lrs[i];
  note_lrs();
}

void LRScheduler::note_lrs() {
  last_lr_.clear();
  for (const auto& group : optimizer().param_groups()) last_lr_.push_back(group.lr);
}

std::vector<double> LRScheduler::scaled(double factor) const {
  std::vector<double> lrs;
  for (const auto& group : optimizer().param_groups()) lrs.push_back(group.lr * factor);
  return lrs;
}

std::vector<double> LRScheduler::per_group(const FloatOrList& value, const std::string& key) const {
  const size_t count = optimizer().param_groups().size();
  if (const double* number = std::get_if<double>(&value)) return std::vector<double>(count, *number);
  const auto& list = std::get<std::vector<double>>(value);
  if (list.size() != count) {
    throw Error(name() + "." + key + ": has " + count_of(list.size(), "value") + ", but " + optimizer().name() +
                " has " + count_of(count, "parameter group") + ". Give one number, or one per group.");
  }
  return list;
}

void LRScheduler::refuse_state(const std::string& why) const {
  throw CheckpointError(name() + ": " + why);
}

State LRScheduler::default_state_dict() const {
  State state;
  state.set("name", name());
  state.set("last_epoch", last_epoch);
  state.set("base_lrs", base_lrs_);
  state.set("last_lr", last_lr_);
  return state;
}

void LRScheduler::load_default_state_dict(const State& saved) {
  const auto saved_name = saved.get<std::string>("name");
  if (saved_name != name()) {
    refuse_state("the saved state belongs to " + saved_name + ". Use the scheduler that wrote it.");
  }
  auto base_lrs = saved.get<std::vector<double>>("base_lrs");
  if (attached() && base_lrs.size() != base_lrs_.size()) {
    refuse_state("the saved state is of " + count_of(base_lrs.size(), "parameter group") + ", the optimizer had " +
                 std::to_string(base_lrs_.size()) + " when this was attached. Use the same groups.");
  }
  auto last_lr = saved.get<std::vector<double>>("last_lr");
  last_epoch = saved.get<int64_t>("last_epoch");
  base_lrs_ = std::move(base_lrs);
  last_lr_ = std::move(last_lr);
}

}  // namespace levin
