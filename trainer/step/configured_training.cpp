#include "levin/trainer/step/configured_training.h"

#include <utility>
#include <vector>

namespace levin {

ConfigNode configured_numbers(const OptimizerConfig& config) {
  ConfigNode all = ConfigNode::list();
  for (const auto& optimizer : config.optimizers()) {
    std::vector<ConfiguredGroup> groups;
    for (const auto& group : optimizer->groups()) groups.push_back({group.lr, group.momentum, group.weight_decay});
    all.items.push_back(ValueType<std::vector<ConfiguredGroup>>::write(groups));
  }
  return all;
}

ConfigNode configured_training(const Run& run, const ConfigNode& numbers) {
  ConfigNode optimizers = ConfigNode::list();
  for (size_t i = 0; i < run.fit.optimizers.size(); ++i) {
    State one;
    one.values.set("options", run.fit.optimizers[i].shared()->written_options());
    one.values.set("groups", numbers.items.at(i));
    optimizers.items.push_back(one.values);
  }
  ConfigNode schedulers = ConfigNode::list();
  for (size_t i = 0; i < run.fit.schedulers.size(); ++i) {
    const LRScheduler& scheduler = *run.fit.schedulers[i].scheduler;
    State one;
    ConfigNode options = scheduler.written_options();
    if (run.fit.total_steps[i] > 0) options.set("total_steps", ValueType<int64_t>::write(run.fit.total_steps[i]));
    one.set("name", scheduler.name());
    one.values.set("options", std::move(options));
    schedulers.items.push_back(one.values);
  }
  State all;
  all.set("lr_scale", run.fit.lr_scale);
  all.set("lr_factor", run.fit.lr_factor);
  all.set("accumulate_grad_batches", run.plan.accumulate_grad_batches);
  all.values.set("optimizers", std::move(optimizers));
  all.values.set("lr_schedulers", std::move(schedulers));
  return all.values;
}

}  // namespace levin
