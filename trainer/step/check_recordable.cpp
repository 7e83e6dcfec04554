#include "levin/trainer/step/check_recordable.h"

#include <algorithm>

#include "levin/core/component.h"
#include "levin/core/error.h"
#include "levin/recompute/recomputation.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/override.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/step/step_notes.h"

namespace levin {

namespace {

[[noreturn]] void cannot(const std::string& why) {
  throw ConfigError(about_recording(why));
}

bool acts_before_update(const Callback& callback) {
  return detail::overrides<Callback>(callback, &Callback::on_before_optimizer_step);
}

// A callback inside the step would run only once, while it is recorded.
bool acts_inside_step(const Callback& callback) {
  using C = Callback;
  return detail::overrides<C>(callback, &C::on_before_zero_grad) ||
         detail::overrides<C>(callback, &C::on_before_backward) ||
         detail::overrides<C>(callback, &C::on_after_backward);
}

bool overrides_step(const LightningModule& module) {
  return detail::overrides<LightningModule>(module, &LightningModule::optimizer_step);
}

bool acts_before_update(const LightningModule& module) {
  using M = LightningModule;
  return detail::overrides<M>(module, &M::on_before_optimizer_step) ||
         detail::overrides<M>(module, &M::configure_gradient_clipping);
}

void check_recordable(const Run& run) {
  if (run.fit.micro_batching != nullptr) cannot("recorded steps take full batches, and micro_batch_size splits them.");
  if (run.entry.recomputation != nullptr && !run.strategy->device().is_cpu()) {
    cannot("a captured step cannot go back to the random numbers of its forward pass, which recompute does.");
  }
  if (!run.entry.module->automatic_optimization()) {
    cannot("with manual optimization training_step decides on the host what is updated, so it cannot be recorded.");
  }
  if (run.fit.optimizers.empty()) cannot("configure_optimizers returned no optimizer, so there is no step to record.");
  const Optimizer& optimizer = *run.fit.optimizers[0].shared();
  if (optimizer.needs_closure()) {
    cannot(optimizer.name() + " evaluates the model as often as the losses ask for, so its step cannot be recorded.");
  }
  if (detail::overrides<LightningModule>(*run.entry.module, &LightningModule::backward)) {
    cannot("the module overrides backward, which a recorded step does not call.");
  }
  if (run.plan.detect_anomaly) {
    cannot("detect_anomaly looks at gradients on the host, so steps cannot be recorded with it.");
  }
  for (const auto& callback : run.entry.callbacks) {
    if (!acts_inside_step(*callback)) continue;
    cannot("the callback " + detail::readable_type_name(typeid(*callback)) +
           " acts around backward, and a recorded step does not call it.");
  }
}

}  // namespace

bool acts_before_update(const Run& run) {
  const auto& callbacks = run.entry.callbacks;
  return acts_before_update(*run.entry.module) ||
         std::any_of(callbacks.begin(), callbacks.end(), [](const auto& each) { return acts_before_update(*each); });
}

bool leaves_updates(const Run& run) {
  return !run.fit.optimizers[0].shared()->is_recordable() || overrides_step(*run.entry.module) ||
         acts_before_update(run);
}

std::shared_ptr<StepRecorder> recorder_for(const Run& run, RecordSteps record) {
  if (record == RecordSteps::automatic && run.strategy->replays_together()) {
    throw ConfigError(about_recording("auto: steps of several ranks on GPUs run as they are; true records them."));
  }
  std::shared_ptr<StepRecorder> recorder = run.strategy->make_recorder();
  if (recorder == nullptr) {
    throw ConfigError(about_recording("steps of " + run.strategy->name() + " on " + run.strategy->device().str() +
                                      " cannot be recorded; those of single_device can, and of ddp on CPUs and over "
                                      "NCCL."));
  }
  check_recordable(run);
  return recorder;
}

}  // namespace levin
