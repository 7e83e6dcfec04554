#include "levin/trainer/run/make_replicas.h"

#include <algorithm>
#include <utility>

#include "levin/core/options/registry.h"
#include "levin/core/process/process_memory.h"
#include "levin/strategies/device_placement.h"
#include "levin/trainer/module_access.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/run/run_access.h"
#include "levin/trainer/step/module_replicas.h"
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

std::shared_ptr<LightningModule> copy_of(Run& run, const DeviceSlot& slot) {
  const LightningModule& module = *run.entry.module;
  std::shared_ptr<LightningModule> copy = cloned(module, slot);
  if (copy == nullptr && !ModuleAccess::made_from(module).empty()) {
    copy = Registry<LightningModule>::instance().make(ModuleAccess::made_from(module), "model");
  }
  if (copy == nullptr) {
    const std::string name = detail::readable_type_name(typeid(module));
    throw ConfigError("TrainerOptions.strategy: " + run.strategy->name() + " needs a replica of " + name +
                      " for each device, and does not know how to make one. Override clone() in it: "
                      "std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override { "
                      "return std::make_shared<" +
                      name + ">(options_); } (weights are copied by the trainer), or name the model in a run file.");
  }
  ModuleAccess::trainer_of(*copy) = &run.trainer;
  copy->setup(*run.entry.stage);
  copy->configure_model();
  if (const auto dtype = run.precision->dtype()) copy->to(*dtype);
  for (const auto& callback : run.entry.callbacks) callback->adapt_model(run.trainer, *copy);
  move_module(*copy, slot.device);
  return copy;
}

}  // namespace

void make_replicas(Run& run) {
  run.entry.replicas.reset();
  const auto slots = run.strategy->placement().replica_slots();
  if (slots.size() < 2) return;
  if (run.entry.stage == Stage::fit && !run.entry.module->automatic_optimization()) {
    throw ConfigError("TrainerOptions.strategy: " + run.strategy->name() +
                      " needs automatic optimization, because a step that runs on several replicas at once cannot step "
                      "optimizers. Use ddp, or one device.");
  }
  const auto on_cpu = [](const DeviceSlot& slot) { return slot.device.is_cpu(); };
  if (std::all_of(slots.begin(), slots.end(), on_cpu)) set_freed_memory(kKeptForThreads);
  const RandomState random_state;  // creating weights that are never used must not change the run
  std::vector<std::shared_ptr<LightningModule>> copies;
  for (size_t k = 1; k < slots.size(); ++k) copies.push_back(copy_of(run, slots[k]));
  run.entry.replicas = std::make_shared<ModuleReplicas>(*run.entry.module, std::move(copies), slots);
}

}  // namespace levin
