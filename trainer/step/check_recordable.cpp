#include "levin/trainer/step/check_recordable.h"

#include "levin/core/options/error.h"
#include "levin/recompute/recomputation.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/step/override.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/step_notes.h"

namespace levin {

namespace {

[[noreturn]] void cannot(const std::string& why) {
  throw ConfigError(about_recording(why));
}

bool overrides_step(const LightningModule& module) {
  return detail::overrides<LightningModule>(module, &LightningModule::optimizer_step);
}

void check_recordable(const StepCore& core) {
  if (core.micro_batching != nullptr) cannot("recorded steps take full batches, and micro_batch_size splits them.");
  if (core.recomputation != nullptr && !core.strategy.placement().device().is_cpu()) {
    cannot("a captured step cannot go back to the random numbers of its forward pass, which recompute does.");
  }
  if (!core.module.automatic_optimization()) {
    cannot("with manual optimization training_step decides on the host what is updated, so it cannot be recorded.");
  }
  if (core.optimizers.empty()) cannot("configure_optimizers returned no optimizer, so there is no step to record.");
  const Optimizer& optimizer = *core.optimizers[0].shared();
  if (optimizer.needs_closure()) {
    cannot(optimizer.name() + " evaluates the model as often as the losses ask for, so its step cannot be recorded.");
  }
  if (detail::overrides<LightningModule>(core.module, &LightningModule::backward)) {
    cannot("the module overrides backward, which a recorded step does not call.");
  }
  if (core.settings.detect_anomaly) {
    cannot("detect_anomaly looks at gradients on the host, so steps cannot be recorded with it.");
  }
  if (!core.settings.acts_inside_step.empty()) {
    cannot("the callback " + core.settings.acts_inside_step +
           " acts around backward, and a recorded step does not call it.");
  }
}

}  // namespace

bool updates_on_host(const StepCore& core) {
  return !core.optimizers[0].shared()->is_recordable() || overrides_step(core.module) ||
         core.settings.acts_before_update;
}

std::shared_ptr<StepRecorder> recorder_for(const StepCore& core, RecordSteps record) {
  if (record == RecordSteps::automatic && core.strategy.recorder().replays_together()) {
    throw ConfigError(about_recording("auto: steps of several ranks on GPUs run eagerly; true records them."));
  }
  std::shared_ptr<StepRecorder> recorder = core.strategy.recorder().make_recorder();
  if (recorder == nullptr) {
    throw ConfigError(about_recording("steps of " + core.strategy.name() + " on " +
                                      core.strategy.placement().device().str() +
                                      " cannot be recorded; steps of single_device can, and of ddp on CPUs and over "
                                      "NCCL."));
  }
  check_recordable(core);
  return recorder;
}

}  // namespace levin
