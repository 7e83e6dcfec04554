#include "levin/trainer/state/training_options.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "levin/core/console.h"
#include "levin/core/short_number.h"
#include "levin/trainer/run/update_scope.h"
#include "levin/trainer/state/run_records.h"
#include "levin/trainer/state/sharded_state.h"
#include "levin/trainer/step/configured_training.h"

namespace levin {

namespace {

using Groups = std::vector<ConfiguredGroup>;

// An item of a list in the checkpoint; null if the list is shorter.
ConfigNode item_of(const State& options, const char* list, size_t index) {
  const ConfigNode* node = options.values.find(list);
  return node != nullptr && index < node->items.size() ? node->items[index] : ConfigNode();
}

State state_of_item(const State& options, const char* list, size_t index) {
  State state;
  ConfigNode item = item_of(options, list, index);
  if (item.is_map()) state.values = std::move(item);
  return state;
}

Groups groups_of(const State& optimizer) {
  return optimizer.has("groups") ? optimizer.get<Groups>("groups") : Groups();
}

ConfigNode node_of(const State& part, const char* key) {
  const ConfigNode* node = part.values.find(key);
  return node != nullptr ? *node : ConfigNode();
}

void add_changes(std::vector<ChangedOption>& to, const State& then, const State& now, const char* key,
                 const std::string& root) {
  if (then.empty()) return;
  for (ChangedOption& change : changed_options(node_of(then, key), node_of(now, key), root)) {
    to.push_back(std::move(change));
  }
}

std::string changes_text(const std::vector<ChangedOption>& changes) {
  std::string text;
  for (const ChangedOption& change : changes) {
    text += (text.empty() ? "" : ", ") + cut_text(change.path, 200) + " was " + change.before + " and is " + change.now;
  }
  return text + " now";
}

// One optimizer of a resumed fit, with its schedulers.
class Resumed {
 public:
  Resumed(Run& run, const State& checkpoint, size_t index)
      : run_(run), checkpoint_(checkpoint), index_(index), fresh_(optimizer().groups()) {
    now_.values = run.fit.configured;
    then_ = checkpoint.part("options");
    then_groups_ = groups_of(state_of_item(then_, "optimizers", index));
    now_groups_ = groups_of(state_of_item(now_, "optimizers", index));
    find_changes();
  }

  /// After the optimizer and its schedulers have their saved state.
  void apply_changes(const std::string& path) {
    if (changes_.empty() || optimizer().groups().empty()) return;
    const double before = optimizer().groups()[0].lr;
    use_numbers();
    if (moves_schedules()) move_schedules();
    const double after = optimizer().groups()[0].lr;
    Console::instance().print(
        "Continuing from " + path + ": " + changes_text(changes_) + ". Training continues with the present options; " +
        (before == after ? "the learning rate is still " + short_number(after)
                         : "the learning rate is " + short_number(after) + " instead of " + short_number(before)) +
        ".");
  }

  /// Whether the schedules are moved from their start, so that their saved state is not needed.
  [[nodiscard]] bool moves_schedules() const { return rates_change_ && can_move_schedules(); }

 private:
  [[nodiscard]] Optimizer& optimizer() const { return run_.fit.optimizers[index_].optimizer(); }

  void find_changes() {
    const std::string name = optimizer().name();
    const State then = state_of_item(then_, "optimizers", index_);
    const State now = state_of_item(now_, "optimizers", index_);
    add_changes(changes_, then, now, "options", name);
    if (changes_.empty()) add_changes(changes_, then, now, "groups", name + ".groups");
    const size_t of_optimizer = changes_.size();
    add_changes(changes_, then_, now_, "lr_scale", "TrainerOptions.lr_scale");
    for (size_t i = 0; i < run_.fit.schedulers.size(); ++i) {
      if (run_.fit.schedulers[i].optimizer_index != index_) continue;
      const State saved = state_of_item(then_, "lr_schedulers", i);
      const State own = state_of_item(now_, "lr_schedulers", i);
      add_changes(changes_, saved, own, "options", run_.fit.schedulers[i].scheduler->name());
    }
    rates_change_ = changes_.size() > of_optimizer;
    for (size_t k = 0; k < std::min(then_groups_.size(), now_groups_.size()); ++k) {
      const ConfiguredGroup& before = then_groups_[k];
      rates_change_ |= before.lr != now_groups_[k].lr || before.momentum != now_groups_[k].momentum;
    }
  }

  // False for schedulers with which a callback has replaced the configured ones, and for those that follow a metric.
  [[nodiscard]] bool can_move_schedules() const {
    bool any = false;
    for (size_t i = 0; i < run_.fit.schedulers.size(); ++i) {
      const LRSchedulerConfig& config = run_.fit.schedulers[i];
      if (config.optimizer_index != index_) continue;
      const State own = state_of_item(now_, "lr_schedulers", i);
      const bool is_configured = own.has("name") && own.get<std::string>("name") == config.scheduler->name();
      if (config.scheduler->wants_metric() || !is_configured) return false;
      any = true;
    }
    return any;
  }

  void use_numbers() {
    const bool scaled_otherwise = !node_of(then_, "lr_scale").same_as(node_of(now_, "lr_scale"));
    const double scale = scaled_otherwise ? now_.get<double>("lr_factor") / then_.get<double>("lr_factor") : 1;
    auto& groups = optimizer().groups();
    const size_t count = std::min({groups.size(), fresh_.size(), then_groups_.size(), now_groups_.size()});
    for (size_t k = 0; k < count; ++k) {  // groups beyond have been added by callbacks
      const ConfiguredGroup& then = then_groups_[k];
      const ConfiguredGroup& now = now_groups_[k];
      if (now.weight_decay != then.weight_decay) groups[k].weight_decay = fresh_[k].weight_decay;
      if (now.momentum != then.momentum) groups[k].momentum = fresh_[k].momentum;
      if (now.lr == then.lr && scale == 1) continue;
      const bool is_as_configured = groups[k].lr == then.lr && scale == 1;
      const double factor = then.lr == 0 ? 0 : now.lr / then.lr * scale;
      groups[k].lr = then.lr == 0 ? fresh_[k].lr : is_as_configured ? now.lr : groups[k].lr * factor;
      groups[k].initial_lr = then.lr == 0 ? fresh_[k].initial_lr : groups[k].initial_lr * factor;
    }
  }

  // As if the run had had the present options from its start.
  void move_schedules() {
    auto& groups = optimizer().groups();
    const size_t count = std::min({groups.size(), fresh_.size(), now_groups_.size()});
    const std::vector<Optimizer::Group> saved = groups;
    for (size_t k = 0; k < count; ++k) {
      groups[k].lr = fresh_[k].lr;
      groups[k].initial_lr = fresh_[k].initial_lr;
      groups[k].momentum = fresh_[k].momentum;
      groups[k].scheduled = fresh_[k].scheduled;
    }
    for (size_t i = 0; i < run_.fit.schedulers.size(); ++i) {
      const LRSchedulerConfig& config = run_.fit.schedulers[i];
      if (config.optimizer_index != index_) continue;
      int64_t steps = checkpoint_.part("lr_schedulers." + std::to_string(i)).get<int64_t>("last_epoch");
      if (run_.fit.total_steps[i] > 0) steps = std::min(steps, run_.fit.total_steps[i]);
      for (int64_t step = 0; step < steps; ++step) config.scheduler->step();
    }
    for (size_t k = count; k < groups.size(); ++k) groups[k] = saved[k];
  }

  Run& run_;
  const State& checkpoint_;
  size_t index_;
  std::vector<Optimizer::Group> fresh_;  // as configured, with the schedulers' first step
  State now_ = {};
  State then_ = {};
  Groups now_groups_ = {};
  Groups then_groups_ = {};
  std::vector<ChangedOption> changes_ = {};
  bool rates_change_ = false;  // one of them determines learning rates or momentum
};

// The state of a scheduler, which the checkpoint must contain.
State scheduler_state(const State& checkpoint, size_t index, const std::string& name, const std::string& path) {
  const std::string key = "lr_schedulers." + std::to_string(index);
  State state = checkpoint.part(key);
  if (!state.empty()) return state;
  throw CheckpointError(path + ": it has no state of " + name + " (" + key +
                        "), so it is of a run without that. Continue with what that run had, or start a new fit from "
                        "its weights (weights.path).");
}

}  // namespace

void restore_optimizers(Sharding& sharding, Fit& fit, const State& checkpoint) {
  const UpdateScope update(sharding);
  for (size_t i = 0; i < fit.optimizers.size(); ++i) {
    Optimizer& optimizer = fit.optimizers[i].optimizer();
    State saved = checkpoint.part("optimizers." + std::to_string(i));
    if (sharding.is_sharded()) saved = optimizer_parts(sharding, optimizer, saved);
    optimizer.load_state(saved);
  }
}

void restore_optimization(Run& run, const State& checkpoint, const std::string& path) {
  std::vector<Resumed> resumed;
  for (size_t i = 0; i < run.fit.optimizers.size(); ++i) resumed.emplace_back(run, checkpoint, i);
  restore_optimizers(*run.strategy, run.fit, checkpoint);
  for (size_t i = 0; i < run.fit.schedulers.size(); ++i) {
    LRScheduler& scheduler = *run.fit.schedulers[i].scheduler;
    const State saved = scheduler_state(checkpoint, i, scheduler.name(), path);
    const bool is_another = saved.get<std::string>("name") != scheduler.name();
    if (is_another || !resumed[run.fit.schedulers[i].optimizer_index].moves_schedules()) scheduler.load_state(saved);
  }
  for (Resumed& each : resumed) each.apply_changes(path);
  const State options = checkpoint.part("options");
  if (run.fit.effective_batch_size > 0 || !options.has("accumulate_grad_batches")) return;
  const auto before = options.get<int64_t>("accumulate_grad_batches");
  const int64_t now = run.plan.accumulate_grad_batches;
  if (before == now) return;
  run.progress.accumulate = now;
  Console::instance().print("Continuing from " + path + ": TrainerOptions.accumulate_grad_batches was " +
                            std::to_string(before) + " and is " + std::to_string(now) +
                            " now, from the next optimizer step on.");
}

}  // namespace levin
