#include "levin/cli/config/run_parts.h"

#include "levin/optim/named_tensors.h"
#include "levin/trainer/module_access.h"
#include "levin/trainer/random_state.h"

namespace levin {

namespace {

LRSchedulerOptions schedule_options(const LrSchedulerSpec& config) {
  return {.interval = config.interval,
          .frequency = config.frequency,
          .monitor = config.monitor.value_or(""),
          .strict = config.strict,
          .name = config.name.value_or("")};
}

// An optimizer or a scheduler in the run file replaces the module's.
void override_optimizers(LightningModule& module, const RunConfig& config) {
  if (!config.optimizer && !config.lr_scheduler) return;
  ModuleAccess::set_optimizer_override(module, [config](LightningModule& m) {
    OptimizerConfig result;
    if (config.optimizer) {
      auto optimizer = Registry<Optimizer>::instance().make(config.optimizer->spec(), "optimizer");
      if (auto* by_name = dynamic_cast<NamesParameters*>(optimizer.get())) {
        by_name->take_names(m.named_parameters().pairs());
      }
      for (auto& group :
           param_groups(m, config.optimizer->param_groups, config.optimizer->no_decay, "optimizer.param_groups")) {
        optimizer->add_param_group(std::move(group));
      }
      result.add_shared(optimizer);
    } else {
      const OptimizerConfig own = m.configure_optimizers();
      for (const auto& optimizer : own.optimizers()) result.add_shared(optimizer);
    }
    if (config.lr_scheduler) {
      const auto scheduler = Registry<LRScheduler>::instance().make(config.lr_scheduler->spec(), "lr_scheduler");
      result.schedule_shared(scheduler, schedule_options(*config.lr_scheduler));
    }
    return result;
  });
}

}  // namespace

RunParts make_parts(const RunConfig& config) {
  if (const auto seed = config.seed()) seed_everything(static_cast<uint64_t>(*seed));
  RunParts parts;
  parts.model = Registry<LightningModule>::instance().make(*config.model, "model");
  if (config.data) parts.data = Registry<DataModule>::instance().make(*config.data, "data");
  override_optimizers(*parts.model, config);
  return parts;
}

void fit(Trainer& trainer, const RunParts& parts, const std::string& ckpt_path) {
  parts.data != nullptr ? trainer.fit(*parts.model, *parts.data, ckpt_path) : trainer.fit(*parts.model, ckpt_path);
}

}  // namespace levin
