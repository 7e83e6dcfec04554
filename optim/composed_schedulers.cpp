#include "levin/optim/composed_schedulers.h"

#include <algorithm>

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

void attach_parts(const Schedulers& schedulers, Optimizer& optimizer, const std::string& name) {
  for (size_t i = 0; i < schedulers.size(); ++i) {
    if (!schedulers[i]->attached()) {
      schedulers[i]->attach(optimizer);
    } else if (&schedulers[i]->optimizer() != &optimizer) {
      throw Error(name + ".schedulers[" + std::to_string(i) + "]: " + schedulers[i]->name() +
                  " is attached to another optimizer. Attach all to the same.");
    }
  }
}

std::string part_key(size_t i) {
  return "schedulers." + std::to_string(i);
}

void save_parts(const Schedulers& schedulers, State& state) {
  for (size_t i = 0; i < schedulers.size(); ++i) state.put(part_key(i), schedulers[i]->state());
}

void load_parts(const State& saved, const Schedulers& schedulers, const std::string& name) {
  if (!saved.has(part_key(schedulers.size() - 1)) || saved.has(part_key(schedulers.size()))) {
    throw CheckpointError(name + ": the saved state does not have " + std::to_string(schedulers.size()) +
                          " schedulers as this one has. Use the options of the run that wrote it.");
  }
  for (size_t i = 0; i < schedulers.size(); ++i) schedulers[i]->load_state(saved.part(part_key(i)));
}

}  // namespace

SequentialLR::SequentialLR(SequentialLROptions options) {
  options = checked(std::move(options), "SequentialLROptions");
  schedulers_ = make_schedulers(options.schedulers, "SequentialLROptions");
  milestones_ = std::move(options.milestones);
  check();
}

SequentialLR::SequentialLR(Optimizer& optimizer, Schedulers schedulers, std::vector<int64_t> milestones)
    : milestones_(std::move(milestones)), schedulers_(std::move(schedulers)) {
  check();
  attach(optimizer);
}

void SequentialLR::check() const {
  check_parts(schedulers_, "SequentialLR");
  if (milestones_.size() + 1 != schedulers_.size()) {
    throw Error("SequentialLR.milestones: has " + std::to_string(milestones_.size()) + " values for " +
                std::to_string(schedulers_.size()) + " schedulers. Give one milestone less than schedulers.");
  }
  if (!std::is_sorted(milestones_.begin(), milestones_.end())) {
    throw Error("SequentialLR.milestones: must be rising. Sort them.");
  }
}

void SequentialLR::begin() {
  base_lrs_ = fix_initial_lrs();
  attach_parts(schedulers_, optimizer(), name());
  undo();
  restart();
}

void SequentialLR::restart() {
  for (auto& group : optimizer().groups()) group.lr = group.initial_lr;
  last_epoch = 0;
  schedulers_.front()->initial_step();
  last_lr_ = schedulers_.front()->last_lr();
}

void SequentialLR::undo() {
  for (auto& scheduler : schedulers_) scheduler->undo();
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
  last_lr_ = scheduler.last_lr();
}

State SequentialLR::state() const {
  State state = LRScheduler::state();
  save_parts(schedulers_, state);
  return state;
}

void SequentialLR::load_state(const State& saved) {
  LRScheduler::load_state(saved);
  load_parts(saved, schedulers_, name());
}

ChainedScheduler::ChainedScheduler(ChainedSchedulerOptions options) {
  options = checked(std::move(options), "ChainedSchedulerOptions");
  schedulers_ = make_schedulers(options.schedulers, "ChainedSchedulerOptions");
  check_parts(schedulers_, "ChainedScheduler");
}

ChainedScheduler::ChainedScheduler(Optimizer& optimizer, Schedulers schedulers) : schedulers_(std::move(schedulers)) {
  check_parts(schedulers_, "ChainedScheduler");
  attach(optimizer);
}

void ChainedScheduler::begin() {
  base_lrs_ = fix_initial_lrs();
  attach_parts(schedulers_, optimizer(), name());
  last_epoch = 0;
  note_lrs();
}

void ChainedScheduler::undo() {
  for (auto& scheduler : schedulers_) scheduler->undo();
}

void ChainedScheduler::restart() {
  for (auto& group : optimizer().groups()) group.lr = group.initial_lr;
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

State ChainedScheduler::state() const {
  State state = LRScheduler::state();
  save_parts(schedulers_, state);
  return state;
}

void ChainedScheduler::load_state(const State& saved) {
  LRScheduler::load_state(saved);
  load_parts(saved, schedulers_, name());
}

}  // namespace levin
