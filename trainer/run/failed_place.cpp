#include "levin/trainer/run/failed_place.h"

#include <typeinfo>

#include "levin/core/component.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

std::string failed_place(const Run& run) {
  std::string text = hook_name(run.entry.failed_hook.value_or(run.entry.place.hook));
  if (run.entry.phase == Phase::train || run.entry.stage == Stage::fit) {
    text += ", epoch " + std::to_string(run.progress.epoch) + ", batch " + std::to_string(run.fit.epoch.batch_idx) +
            ", global step " + std::to_string(run.progress.global_step);
  }
  if (run.entry.phase != Phase::train && run.entry.place.dataloader_idx >= 0) {
    text += ", dataloader " + std::to_string(run.entry.place.dataloader_idx);
  }
  return text;
}

std::string calling_hook(const EntryPoint& entry) {
  const std::string hook = hook_name(entry.place.hook);
  if (entry.place.hook == Hook::none) return hook;
  if (entry.caller != nullptr) return hook + " of " + detail::readable_type_name(*entry.caller);
  const LightningModule& module = *entry.module;
  return hook + " of " + detail::readable_type_name(typeid(module));
}

}  // namespace levin
