#include "levin/trainer/step/module_replicas.h"

#include <algorithm>
#include <utility>

#include "levin/core/component.h"
#include "levin/core/freed_memory.h"
#include "levin/strategies/device/parallel_backward.h"
#include "levin/strategies/device/scatter_gather.h"
#include "levin/strategies/move_module.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/run_access.h"
#include "levin/trainer/step/batch_parts.h"
#include "levin/trainer/step/log_value.h"
#include "levin/trainer/step/publish_output.h"
#include "levin/trainer/step/step_share.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// clone() of a class that overrides it; null if it is torch::nn::Module's, which only throws.
std::shared_ptr<LightningModule> cloned(const LightningModule& module, const DeviceSlot& slot) {
  std::shared_ptr<torch::nn::Module> copy;
  try {
    copy = module.clone(slot.device);
  } catch (const c10::Error& error) {
    if (std::string(error.what()).find("clone() has not been implemented") == std::string::npos) throw;
    return nullptr;
  }
  auto replica = std::dynamic_pointer_cast<LightningModule>(copy);
  if (replica == nullptr || replica.get() == &module) {
    throw ConfigError("dp: clone() of " + module.name() + " must return a new " + module.name() + ", got " +
                      (copy == nullptr      ? "nothing"
                       : replica == nullptr ? copy->name()
                                            : "the module itself") +
                      ".");
  }
  return replica;
}

// Concatenates the shares' predictions on the CPU; on the first device they might not fit.
at::Tensor outputs_on_cpu(std::vector<at::Tensor> outputs) {
  for (at::Tensor& output : outputs) output = output.defined() ? output.cpu() : output;
  return gather(outputs, DeviceSlot());
}

}  // namespace

ModuleReplicas::ModuleReplicas(Run& run, const std::vector<DeviceSlot>& slots)
    : parallel_(std::make_shared<ParallelApply>(slots)) {
  if (run.entry.stage == Stage::fit && !run.entry.module->automatic_optimization()) {
    throw ConfigError("TrainerOptions.strategy: " + run.strategy->name() +
                      " needs automatic optimization, because a step that runs on several replicas at once cannot step "
                      "optimizers. Use ddp, or one device.");
  }
  const auto on_cpu = [](const DeviceSlot& slot) { return slot.device.is_cpu(); };
  if (std::all_of(slots.begin(), slots.end(), on_cpu)) set_freed_memory(kKeptForThreads);
  const RandomState random_state;  // creating weights that are never used must not change the run
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  for (size_t k = 1; k < slots.size(); ++k) {
    copies_.push_back(copy_of(run, slots[k]));
    modules.push_back(copies_.back());
  }
  replicas_ = std::make_shared<Replicas>(*run.entry.module, std::move(modules), slots);
}

std::shared_ptr<LightningModule> ModuleReplicas::copy_of(Run& run, const DeviceSlot& slot) const {
  const LightningModule& module = *run.entry.module;
  std::shared_ptr<LightningModule> copy = cloned(module, slot);
  if (copy == nullptr && !module.made_from().empty()) {
    copy = Registry<LightningModule>::instance().make(module.made_from(), "model");
  }
  if (copy == nullptr) {
    const std::string name = detail::readable_type_name(typeid(module));
    throw ConfigError("TrainerOptions.strategy: " + run.strategy->name() + " needs a replica of " + name +
                      " for each device, and does not know how to make one. Override clone() in it: "
                      "std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override { "
                      "return std::make_shared<" +
                      name + ">(options_); } (weights are copied by the trainer), or name the model in a run file.");
  }
  RunAccess::trainer_of(*copy) = &run.trainer;
  copy->setup(*run.entry.stage);
  copy->configure_model();
  if (const auto dtype = run.precision->dtype()) copy->to(*dtype);
  for (const auto& callback : run.entry.callbacks) callback->adapt_model(run.trainer, *copy);
  move_module(*copy, slot.device);
  return copy;
}

at::Tensor ModuleReplicas::run_step(Run& run, const Batch& batch, Result result, const Step& step) {
  const auto& slots = parallel_->slots();
  const auto sizes = share_sizes(batch.size(), slots.size());
  const size_t count = sizes.size();
  BatchParts parts(batch, sizes, slots);
  const bool cut = result == Result::loss && can_run_backward_in_parallel(*replicas_, *parallel_, count);
  if (cut) {
    replicas_->refresh_leaves(count);
  } else {
    replicas_->refresh(count);
  }
  std::vector<at::Tensor> results(count);
  (*parallel_)(count, [&](size_t k) {
    const ShareScope scope(parts.shares[k]);
    results[k] = step(k == 0 ? *run.entry.module : *copies_[k - 1], parts.batches[k]);
  });
  if (cut) results = with_parallel_backward(replicas_, parallel_, std::move(results));
  log_shares(run, parts.shares);
  join_outputs(run, parts.shares);
  if (result == Result::loss) return mean_of_shares(run, results, parts.shares, /*note=*/true);
  return run.strategy->gathers_outputs() ? gather(results, slots[0]) : outputs_on_cpu(std::move(results));
}

void make_replicas(Run& run) {
  run.entry.replicas.reset();
  const auto slots = run.strategy->replica_slots();
  if (slots.size() > 1) run.entry.replicas = std::make_shared<ModuleReplicas>(run, slots);
}

}  // namespace levin
