#include "levin/trainer/state/training_options.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/trainer/run/configured_training.h"
#include "levin/trainer/run/fit_length.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/lr_schedulers.h"
#include "levin/trainer/state/run_records.h"
#include "levin/trainer/state/sharded_state.h"
#include "levin/trainer/step/run_messages.h"
#include "levin/trainer/step/update_scope.h"

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

ConfigNode option_of(const State& part, const char* key) {
  const ConfigNode* node = part.values.find(key);
  return node != nullptr ? *node : ConfigNode();
}

void add_changes(std::vector<ChangedOption>& to, const State& then, const State& now, const char* key,
                 const std::string& root) {
  if (then.empty()) return;
  for (ChangedOption& change : changed_options(option_of(then, key), option_of(now, key), root)) {
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

std::string key_of_schedule(size_t index) {
  return "lr_schedulers." + std::to_string(index);
}

// One optimizer of a resumed fit, with its schedulers.
class Resumed {
 public:
  Resumed(Run& run, const State& checkpoint, size_t index)
      : run_(run), checkpoint_(checkpoint), index_(index), fresh_(optimizer().param_groups()) {
    now_.values = present_training(run);
    then_ = checkpoint.part("options");
    then_groups_ = groups_of(state_of_item(then_, "optimizers", index));
    now_groups_ = groups_of(state_of_item(now_, "optimizers", index));
    match_schedules();
    find_changes();
  }

  /// Throws if the checkpoint has no state of a schedule.
  void check_schedules(const std::string& path) const {
    for (const Schedule& each : schedules_) {
      if (each.saved.empty()) {
        throw CheckpointError(path + ": it has no state of " + each.scheduler().name() + " (" +
                              key_of_schedule(each.index) +
                              "), so it is of a run without that. Continue with what that run had, or start a new fit "
                              "from its weights (weights.path).");
      }
      if (is_another(each)) each.scheduler().load_state_dict(each.saved);  // throws
    }
  }

  /// Called after the optimizer has its saved state. Schedules that will be moved from their start do not need theirs.
  void restore_schedules(const std::string& path) {
    check_schedules(path);
    for (const Schedule& each : schedules_) {
      if (!moves_schedules()) each.scheduler().load_state_dict(each.saved);
    }
  }

  /// Called after restore_schedules().
  void apply_changes(const std::string& path) {
    if (changes_.empty() || optimizer().param_groups().empty()) return;
    const double before = optimizer().param_groups()[0].lr;
    use_numbers();
    moves_schedules() ? move_schedules() : keep_lowest_rates();
    const double after = optimizer().param_groups()[0].lr;
    note_of_run(
        "Continuing from " + path + ": " + changes_text(changes_) + ". Training continues with the present options; " +
        (before == after ? "the learning rate is still " + short_number(after)
                         : "the learning rate is " + short_number(after) + " instead of " + short_number(before)) +
        ".");
  }

 private:
  // One of the present schedulers, with its options then and now.
  struct Schedule {
    size_t index;
    LRSchedulerConfig config;
    int64_t total_steps;  // that the run has filled in; 0: none
    State now;
    State then = {};
    State saved = {};

    [[nodiscard]] LRScheduler& scheduler() const { return *config.scheduler; }
    [[nodiscard]] bool is_by_callback() const { return now.has("by_callback"); }
    // False for manual optimization, and a checkpoint of an older Levin.
    [[nodiscard]] bool knows_when() const { return then.has("interval") && now.has("interval"); }
    [[nodiscard]] bool is_due_otherwise() const {
      return knows_when() && !(option_of(then, "interval").same_as(option_of(now, "interval")) &&
                               option_of(then, "frequency").same_as(option_of(now, "frequency")));
    }
  };

  static bool is_another(const Schedule& each) {
    return each.saved.get<std::string>("name") != each.scheduler().name();
  }

  [[nodiscard]] Optimizer& optimizer() const { return run_.fit.optimizers()[index_].optimizer(); }

  [[nodiscard]] State saved_state(size_t index) const { return checkpoint_.part(key_of_schedule(index)); }

  // The indices of the checkpoint's schedulers of this optimizer. A checkpoint of an older Levin does not say whose.
  [[nodiscard]] std::vector<size_t> saved_schedules() const {
    const auto& present = run_.fit.schedulers;
    std::vector<size_t> own;
    for (size_t i = 0; !saved_state(i).empty(); ++i) {
      const State item = state_of_item(then_, "lr_schedulers", i);
      const size_t assumed = i < present.size() ? present[i].optimizer_index : 0;
      if (index_ == (item.has("optimizer") ? static_cast<size_t>(item.get<int64_t>("optimizer")) : assumed)) {
        own.push_back(i);
      }
    }
    return own;
  }

  // Finds the saved schedule for each present one: the first of its name, or else one that is left, which is refused.
  void match_schedules() {
    removed_ = saved_schedules();
    const auto& total_steps = run_.fit.total_steps;
    for (size_t i = 0; i < run_.fit.schedulers.size(); ++i) {
      const LRSchedulerConfig& config = run_.fit.schedulers[i];
      if (config.optimizer_index != index_) continue;
      schedules_.push_back(
          {i, config, i < total_steps.size() ? total_steps[i] : 0, state_of_item(now_, "lr_schedulers", i)});
      Schedule& schedule = schedules_.back();
      const auto found = std::find_if(removed_.begin(), removed_.end(), [&](size_t saved) {
        return saved_state(saved).get<std::string>("name") == config.scheduler->name();
      });
      if (found == removed_.end()) continue;
      schedule.saved = saved_state(*found);
      const State then = state_of_item(then_, "lr_schedulers", *found);
      if (then.has("name") && then.get<std::string>("name") == config.scheduler->name()) schedule.then = then;
      removed_.erase(found);
    }
    for (Schedule& schedule : schedules_) {
      if (schedule.saved.empty() && !removed_.empty()) schedule.saved = saved_state(removed_.front());
    }
  }

  void find_changes() {
    const std::string name = optimizer().name();
    const State then = state_of_item(then_, "optimizers", index_);
    const State now = state_of_item(now_, "optimizers", index_);
    add_changes(changes_, then, now, "options", name);
    if (changes_.empty()) add_changes(changes_, then, now, "groups", name + ".groups");
    const size_t of_optimizer = changes_.size();
    add_changes(changes_, then_, now_, "lr_scale", "TrainerOptions.lr_scale");
    for (const Schedule& each : schedules_) {
      const std::string scheduler = each.scheduler().name();
      add_changes(changes_, each.then, each.now, "options", scheduler);
      if (!each.knows_when()) continue;
      for (const char* key : {"interval", "frequency"}) {
        add_changes(changes_, each.then, each.now, key, scheduler + "." + key);
      }
    }
    for (const size_t saved : removed_) {
      changes_.push_back({name + ".lr_scheduler", saved_state(saved).get<std::string>("name"), "not set"});
    }
    rates_change_ = changes_.size() > of_optimizer;
    for (size_t k = 0; k < std::min(then_groups_.size(), now_groups_.size()); ++k) {
      const ConfiguredGroup& before = then_groups_[k];
      rates_change_ |= before.lr != now_groups_[k].lr || before.momentum != now_groups_[k].momentum;
    }
  }

  // False without a schedule, and where one follows a metric.
  [[nodiscard]] bool moves_schedules() const {
    if (!rates_change_ || (schedules_.empty() && removed_.empty())) return false;
    return std::none_of(schedules_.begin(), schedules_.end(),
                        [](const Schedule& each) { return each.scheduler().wants_metric(); });
  }

  [[nodiscard]] bool is_scaled_otherwise() const {
    return !option_of(then_, "lr_scale").same_as(option_of(now_, "lr_scale"));
  }

  // By which the options multiply the learning rate of a group, compared with those then. 0: it was 0 then.
  [[nodiscard]] double rate_factor(size_t group) const {
    const double scale = is_scaled_otherwise() ? now_.get<double>("lr_factor") / then_.get<double>("lr_factor") : 1;
    const double then = then_groups_[group].lr;
    return then == 0 ? 0 : now_groups_[group].lr / then * scale;
  }

  // Groups beyond have been added by callbacks.
  [[nodiscard]] size_t configured_groups() const {
    return std::min({optimizer().param_groups().size(), fresh_.size(), then_groups_.size(), now_groups_.size()});
  }

  void use_numbers() {
    auto& groups = optimizer().param_groups();
    for (size_t k = 0; k < configured_groups(); ++k) {
      const ConfiguredGroup& then = then_groups_[k];
      const ConfiguredGroup& now = now_groups_[k];
      if (now.weight_decay != then.weight_decay) groups[k].weight_decay = fresh_[k].weight_decay;
      if (now.momentum != then.momentum) groups[k].momentum = fresh_[k].momentum;
      if (now.lr == then.lr && !is_scaled_otherwise()) continue;
      const bool is_as_configured = groups[k].lr == then.lr && !is_scaled_otherwise();
      groups[k].lr = then.lr == 0 ? fresh_[k].lr : is_as_configured ? now.lr : groups[k].lr * rate_factor(k);
      groups[k].initial_lr = then.lr == 0 ? fresh_[k].initial_lr : groups[k].initial_lr * rate_factor(k);
    }
  }

  // A schedule that follows a metric would not have gone below its lowest rate.
  void keep_lowest_rates() {
    auto& groups = optimizer().param_groups();
    for (const Schedule& each : schedules_) {
      State options;
      options.values = option_of(each.now, "options");
      if (!each.scheduler().wants_metric() || !options.has("min_lr")) continue;
      const auto lowest = options.get<FloatOrList>("min_lr");
      for (size_t k = 0; k < configured_groups(); ++k) {
        const auto* list = std::get_if<std::vector<double>>(&lowest);
        const double low = list != nullptr ? list->at(k) : std::get<double>(lowest);
        groups[k].lr = std::max(groups[k].lr, std::min(low, fresh_[k].lr));
      }
    }
  }

  // As if the run had had the present options from its start.
  void move_schedules() {
    auto& groups = optimizer().param_groups();
    const size_t count = std::min({groups.size(), fresh_.size(), now_groups_.size()});
    const std::vector<Optimizer::Group> saved = groups;
    const bool starts_later =
        std::any_of(schedules_.begin(), schedules_.end(), [](const Schedule& each) { return each.is_by_callback(); });
    for (size_t k = 0; k < count && !starts_later; ++k) {
      groups[k].lr = fresh_[k].lr;
      groups[k].initial_lr = fresh_[k].initial_lr;
      groups[k].momentum = fresh_[k].momentum;
      groups[k].scheduled = fresh_[k].scheduled;
    }
    for (const Schedule& each : schedules_) {
      const int64_t moves = moves_of(each);
      if (each.is_by_callback()) start_again(each);
      for (int64_t done = each.scheduler().last_epoch; done < moves; ++done) each.scheduler().step();
    }
    for (size_t k = count; k < groups.size(); ++k) groups[k] = saved[k];
  }

  // Returns how often a schedule would have been moved if its present interval and frequency had always applied. A
  // callback's schedule did not start with the run.
  [[nodiscard]] int64_t moves_of(const Schedule& each) const {
    int64_t moves = each.saved.get<int64_t>("last_epoch");
    if (each.is_due_otherwise() && !each.is_by_callback()) {
      moves = moves_so_far(run_, interval_of(each.config), each.config.options.frequency);
    }
    const bool ends_with_run = each.total_steps > 0 && !each.is_by_callback();
    return ends_with_run ? std::min(moves, each.total_steps) : moves;
  }

  // Where a callback's schedule has begun, before its first step.
  void start_again(const Schedule& each) {
    State start = each.saved;
    auto rates = start.get<std::vector<double>>("base_lrs");
    for (size_t k = 0; k < std::min(rates.size(), configured_groups()); ++k) {
      if (then_groups_[k].lr != 0) rates[k] *= rate_factor(k);
    }
    start.set("base_lrs", rates);
    start.set("last_lr", rates);
    start.set("last_epoch", int64_t{-1});
    each.scheduler().load_state_dict(start);
    auto& groups = optimizer().param_groups();
    for (size_t k = 0; k < std::min(rates.size(), groups.size()); ++k) groups[k].lr = rates[k];
  }

  Run& run_;
  const State& checkpoint_;
  size_t index_;
  std::vector<Optimizer::Group> fresh_;  // as configured, with the schedulers' first step
  State now_ = {};
  State then_ = {};
  Groups now_groups_ = {};
  Groups then_groups_ = {};
  std::vector<Schedule> schedules_ = {};  // the present ones
  std::vector<size_t> removed_ = {};      // saved ones that the present run does not have
  std::vector<ChangedOption> changes_ = {};
  bool rates_change_ = false;  // one of them determines learning rates or momentum
};

}  // namespace

void restore_optimizers(Sharding& sharding, Fit& fit, const State& checkpoint) {
  const UpdateScope update(sharding);
  for (size_t i = 0; i < fit.optimizers().size(); ++i) {
    Optimizer& optimizer = fit.optimizers()[i].optimizer();
    State saved = checkpoint.part("optimizers." + std::to_string(i));
    if (sharding.is_sharded()) saved = optimizer_parts(sharding, optimizer, saved);
    optimizer.load_state_dict(saved);
  }
}

void check_optimization(Run& run, const State& checkpoint, const std::string& path) {
  for (size_t i = 0; i < run.fit.optimizers().size(); ++i) Resumed(run, checkpoint, i).check_schedules(path);
  // Only load_state_dict() knows what an optimizer accepts, so each loads the file's state, and then its own again.
  std::vector<State> before;
  for (auto& wrapped : run.fit.optimizers()) before.push_back(wrapped.optimizer().state_dict());
  const auto undo = [&] {
    const UpdateScope update(run.strategy->sharding());
    for (size_t i = 0; i < before.size(); ++i) run.fit.optimizers()[i].optimizer().load_state_dict(before[i]);
  };
  try {
    restore_optimizers(run.strategy->sharding(), run.fit, checkpoint);
  } catch (...) {
    undo();
    throw;
  }
  undo();
}

void restore_optimization(Run& run, const State& checkpoint, const std::string& path) {
  std::vector<Resumed> resumed;
  for (size_t i = 0; i < run.fit.optimizers().size(); ++i) resumed.emplace_back(run, checkpoint, i);
  restore_optimizers(run.strategy->sharding(), run.fit, checkpoint);
  for (Resumed& each : resumed) each.restore_schedules(path);
  for (Resumed& each : resumed) each.apply_changes(path);
  const State options = checkpoint.part("options");
  if (run.fit.effective_batch_size > 0 || !options.has("accumulate_grad_batches")) return;
  const bool had_schedule = options.has("accumulation_schedule") && options.get<bool>("accumulation_schedule");
  const bool is_without = had_schedule && accumulation_schedule(run) == nullptr;
  const int64_t before = is_without ? run.progress.accumulate : options.get<int64_t>("accumulate_grad_batches");
  const int64_t now = run.plan.accumulate_grad_batches;
  if (before == now) return;
  run.set_accumulation(now);
  note_of_run("Continuing from " + path + ": TrainerOptions.accumulate_grad_batches was " + std::to_string(before) +
              (is_without ? " by a callback" : "") + " and is " + std::to_string(now) +
              " now, from the next optimizer step on.");
}

}  // namespace levin
