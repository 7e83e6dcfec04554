// The steps of a LightningModule that Fabric trains. While one runs, the module is attached to the run's trainer.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/precision/precision.h"
#include "levin/trainer/loops/evaluation_scopes.h"
#include "levin/trainer/loops/fabric_run.h"
#include "levin/trainer/module_access.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run_access.h"
#include "levin/trainer/trainer.h"

namespace levin {

std::vector<LightningModule*> FabricRun::lightning_modules() const {
  std::vector<LightningModule*> found;
  for (const auto& child : modules_->children()) {
    if (auto* module = dynamic_cast<LightningModule*>(child.get())) found.push_back(module);
  }
  return found;
}

LightningModule& FabricRun::lightning_module() const {
  const std::vector<LightningModule*> found = lightning_modules();
  if (found.size() == 1) return *found[0];
  throw Error("it calls a step of the LightningModule that was set up, and " +
              (found.empty() ? std::string("none was") : std::to_string(found.size()) + " were") +
              ". Set up exactly one, or call step with a closure.");
}

at::Tensor FabricRun::step(const Batch& batch) {
  check_outside_step();
  LightningModule& module = lightning_module();
  if (!module.automatic_optimization()) {
    throw Error(
        "the module uses manual optimization, so its training_step calls the optimizers of a Trainer. Use a "
        "Trainer, or call backward and optimizer.step() in your loop.");
  }
  check_no_replicas();
  Run& run = open();
  const auto attached = set_in_scope(ModuleAccess::trainer_of(module), trainer_.get());
  run.entry.train_metrics.reset();
  return step(batch, [&](torch::nn::Module&, const Batch& each) {
    return module.training_step(each, run.fit.epoch.batch_idx);
  });
}

void FabricRun::evaluate_batch(Run& run, Phase phase, Hook hook, const Batch& batch,
                               const std::function<void(LightningModule&)>& step) {
  LightningModule& module = lightning_module();
  const auto attached = set_in_scope(ModuleAccess::trainer_of(module), trainer_.get());
  const auto in_phase = set_in_scope(run.entry.phase, phase);
  const auto placed = set_in_scope(run.entry.place, {.batch_size = std::max<int64_t>(1, batch.size())});
  WholeWeights whole(*run.strategy);
  std::optional<RankZeroBuffers> buffers(std::in_place, run);
  EvalMode mode(run.entry, module, phase);
  const at::AutoGradMode no_gradients(false);
  {
    const HookScope scope(run.entry, hook);
    const ForwardScope precision(*run.precision, run.strategy->placement().device().type());
    step(module);
  }
  mode.end();
  buffers.reset();
  whole.end();
}

Metrics FabricRun::evaluate(const Batch& batch) {
  Run& run = begin();
  MetricStore& store = run.entry.eval_metrics;
  store.reset();
  evaluate_batch(run, Phase::validate, Hook::validation_step, batch,
                 [&](LightningModule& module) { module.validation_step(batch, 0); });
  if (run.has_peers()) store.sync_epoch(run.strategy->ranks());
  const Metrics values = store.monitored(/*on_step=*/false, /*training=*/false);
  for (const auto& [name, value] : values) run.set_callback_metric(name, value, run.batches_done());
  return values;
}

at::Tensor FabricRun::predict(const Batch& batch) {
  Run& run = begin();
  at::Tensor prediction;
  evaluate_batch(run, Phase::predict, Hook::predict_step, batch,
                 [&](LightningModule& module) { prediction = module.predict_step(batch, 0); });
  return prediction;
}

}  // namespace levin
