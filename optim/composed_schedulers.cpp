#include "levin/optim/composed_schedulers.h"

#include <algorithm>

#include "levin/core/options/error.h"

namespace levin {

namespace {

// All problems of all parts are reported together.
Schedulers make_schedulers(const std::vector<ClassSpec>& specs, const std::string& path) {
  const auto& registry = Registry<LRScheduler>::instance();
  Problems problems;
  Schedulers made;
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string here = path + ".schedulers[" + std::to_string(i) + "]";
    registry.resolve(specs[i], here, problems);
    if (problems.empty()) made.push_back(registry.make(specs[i], here));
  }
  problems.throw_if_any();
  return made;
}

void check_parts(const Schedulers& schedulers, const std::string& name) {
  if (schedulers.empty()) throw Error(name + ": has no schedulers. Give at least one.");
  for (size_t i = 0; i < schedulers.size(); ++i) {
    const std::string what = name + ".schedulers[" + std::to_string(i) + "]: ";
    if (schedulers[i] == nullptr) throw Error(what + "is null. Give a scheduler.");
    if (schedulers[i]->wants_metric()) {
      throw Error(what + schedulers[i]->name() + " needs a metric at each step. Use it on its own.");
    }
  }
}

std::string part_key(size_t i) {
  return "schedulers." + std::to_string(i);
}

}  // namespace

State ComposedScheduler::default_state_dict() const {
  State state = LRScheduler::default_state_dict();
  for (size_t i = 0; i < schedulers_.size(); ++i) state.put(part_key(i), schedulers_[i]->state_dict());
  return state;
}

void ComposedScheduler::load_default_state_dict(const State& saved) {
  LRScheduler::load_default_state_dict(saved);
  if (!saved.has(part_key(schedulers_.size() - 1)) || saved.has(part_key(schedulers_.size()))) {
    throw CheckpointError(name() + ": the saved state does not have " + count_of(schedulers_.size(), "scheduler") +
                          " as this one has. Use the options of the run that wrote it.");
  }
  for (size_t i = 0; i < schedulers_.size(); ++i) schedulers_[i]->load_state_dict(saved.part(part_key(i)));
}

bool ComposedScheduler::counts_steps() const {
  return std::any_of(schedulers_.begin(), schedulers_.end(), [](const auto& part) { return part->counts_steps(); });
}

bool ComposedScheduler::wants_total_steps() const {
  return std::any_of(schedulers_.begin(), schedulers_.end(),
                     [](const auto& part) { return part->wants_total_steps(); });
}

ConfigNode ComposedScheduler::written_options() const {
  ConfigNode parts = ConfigNode::list();
  for (const auto& part : schedulers_) {
    parts.items.push_back(ValueType<ClassSpec>::write({part->name(), part->written_options(), {}}));
  }
  ConfigNode node = ConfigNode::map();
  node.set("schedulers", std::move(parts));
  return node;
}

ConfigNode SequentialLR::written_options() const {
  ConfigNode node = ComposedScheduler::written_options();
  node.set("milestones", ValueType<std::vector<int64_t>>::write(milestones_));
  return node;
}

void ComposedScheduler::undo() {
  for (auto& scheduler : schedulers_) scheduler->undo();
}

void ComposedScheduler::attach_parts() {
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    if (!schedulers_[i]->attached()) {
      schedulers_[i]->attach(optimizer());
    } else if (&schedulers_[i]->optimizer() != &optimizer()) {
      throw Error(name() + ".schedulers[" + std::to_string(i) + "]: " + schedulers_[i]->name() +
                  " is attached to another optimizer. Attach all to the same.");
    }
  }
}

SequentialLR::SequentialLR(SequentialLROptions options) {
  options = checked(std::move(options), "SequentialLROptions");
  schedulers_ = make_schedulers(options.schedulers, "SequentialLROptions");
  milestones_ = std::move(options.milestones);
  check();
}

SequentialLR::SequentialLR(Optimizer& optimizer, Schedulers schedulers, std::vector<int64_t> milestones)
    : milestones_(std::move(milestones)) {
  schedulers_ = std::move(schedulers);
  check();
  attach(optimizer);
}

void SequentialLR::check() const {
  check_parts(schedulers_, "SequentialLR");
  if (milestones_.size() + 1 != schedulers_.size()) {
    throw Error("SequentialLR.milestones: has " + count_of(milestones_.size(), "value") + " for " +
                count_of(schedulers_.size(), "scheduler") + ". Give one milestone less than schedulers.");
  }
  if (!std::is_sorted(milestones_.begin(), milestones_.end())) {
    throw Error("SequentialLR.milestones: must be rising. Sort them.");
  }
}

void SequentialLR::fill_total_steps(int64_t steps) {
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    const int64_t first = i == 0 ? 0 : milestones_[i - 1];
    const int64_t end = i < milestones_.size() ? std::min(milestones_[i], steps) : steps;
    if (schedulers_[i]->wants_total_steps()) schedulers_[i]->fill_total_steps(std::max<int64_t>(1, end - first));
  }
}

void SequentialLR::begin() {
  base_lrs_ = fix_initial_lrs();
  attach_parts();
  undo();
  restart();
}

void SequentialLR::restart() {
  for (auto& group : optimizer().param_groups()) group.lr = group.initial_lr;
  last_epoch = 0;
  schedulers_.front()->initial_step();
  last_lr_ = schedulers_.front()->get_last_lr();
}

void SequentialLR::advance(std::optional<double>) {
  static_cast<void>(optimizer());
  if (is_initial_) return restart();  // it is the first of another SequentialLR
  ++last_epoch;
  const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch);
  const auto index = static_cast<size_t>(next - milestones_.begin());
  LRScheduler& scheduler = *schedulers_[index];
  if (index > 0 && milestones_[index - 1] == last_epoch) {
    scheduler.restart();
  } else {
    scheduler.advance({});
  }
  last_lr_ = scheduler.get_last_lr();
}

ChainedScheduler::ChainedScheduler(ChainedSchedulerOptions options) {
  options = checked(std::move(options), "ChainedSchedulerOptions");
  schedulers_ = make_schedulers(options.schedulers, "ChainedSchedulerOptions");
  check_parts(schedulers_, "ChainedScheduler");
}

ChainedScheduler::ChainedScheduler(Optimizer& optimizer, Schedulers schedulers) {
  schedulers_ = std::move(schedulers);
  check_parts(schedulers_, "ChainedScheduler");
  attach(optimizer);
}

void ChainedScheduler::fill_total_steps(int64_t steps) {
  for (auto& scheduler : schedulers_) {
    if (scheduler->wants_total_steps()) scheduler->fill_total_steps(steps);
  }
}

void ChainedScheduler::begin() {
  base_lrs_ = fix_initial_lrs();
  attach_parts();
  last_epoch = 0;
  note_lrs();
}

void ChainedScheduler::restart() {
  for (auto& group : optimizer().param_groups()) group.lr = group.initial_lr;
  last_epoch = 0;
  for (auto& scheduler : schedulers_) scheduler->initial_step();
  note_lrs();
}

void ChainedScheduler::advance(std::optional<double>) {
  static_cast<void>(optimizer());
  if (is_initial_) return restart();  // it is the first of a SequentialLR
  ++last_epoch;
  for (auto& scheduler : schedulers_) scheduler->advance({});
  note_lrs();
}

}  // namespace levin
