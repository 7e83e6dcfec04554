#include "levin/trainer/run/configured_training.h"

#include <utility>
#include <vector>

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/lr_schedulers.h"

namespace levin {

namespace {

State scheduler_options(const Run& run, const LRSchedulerConfig& config, int64_t total_steps) {
  State one;
  ConfigNode options = config.scheduler->written_options();
  if (total_steps > 0) options.set("total_steps", ValueType<int64_t>::write(total_steps));
  one.set("name", config.scheduler->name());
  one.set("optimizer", static_cast<int64_t>(config.optimizer_index));
  if (run.entry.module->automatic_optimization()) {
    one.set("interval", interval_of(config));
    one.set("frequency", config.options.frequency);
  }
  one.values.set("options", std::move(options));
  return one;
}

}  // namespace

ConfigNode configured_numbers(const OptimizerConfig& config) {
  ConfigNode all = ConfigNode::list();
  for (const auto& optimizer : config.optimizers()) {
    std::vector<ConfiguredGroup> groups;
    for (const auto& group : optimizer->param_groups())
      groups.push_back({group.lr, group.momentum, group.weight_decay});
    all.items.push_back(ValueType<std::vector<ConfiguredGroup>>::write(groups));
  }
  return all;
}

ConfigNode configured_training(const Run& run, const ConfigNode& numbers) {
  ConfigNode optimizers = ConfigNode::list();
  for (size_t i = 0; i < run.fit.optimizers().size(); ++i) {
    State one;
    one.values.set("options", run.fit.optimizers()[i].shared()->written_options());
    one.values.set("groups", numbers.items.at(i));
    optimizers.items.push_back(one.values);
  }
  State all;
  all.set("lr_scale", run.fit.lr_scale);
  all.set("lr_factor", run.fit.lr_factor);
  all.set("accumulate_grad_batches", run.plan.accumulate_grad_batches);
  all.set("accumulation_schedule", accumulation_schedule(run) != nullptr);
  all.values.set("optimizers", std::move(optimizers));
  ConfigNode schedulers = ConfigNode::list();
  for (size_t i = 0; i < run.fit.schedulers.size(); ++i) {
    schedulers.items.push_back(scheduler_options(run, run.fit.schedulers[i], run.fit.total_steps[i]).values);
  }
  all.values.set("lr_schedulers", std::move(schedulers));
  return all.values;
}

ConfigNode present_training(const Run& run) {
  State all;
  all.values = run.fit.configured;
  if (!all.has("lr_schedulers")) return all.values;
  const ConfigNode configured = *all.values.find("lr_schedulers");
  ConfigNode schedulers = ConfigNode::list();
  for (size_t i = 0; i < run.fit.schedulers.size(); ++i) {
    const LRSchedulerConfig& config = run.fit.schedulers[i];
    State one;
    if (i < configured.items.size()) one.values = configured.items[i];
    const bool is_configured = one.has("name") && one.get<std::string>("name") == config.scheduler->name();
    if (!is_configured) {
      one = scheduler_options(run, config, 0);
      one.set("by_callback", true);
    }
    schedulers.items.push_back(one.values);
  }
  all.values.set("lr_schedulers", std::move(schedulers));
  return all.values;
}

}  // namespace levin
