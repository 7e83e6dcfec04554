#include "levin/trainer/run/failed_place.h"

#include <typeinfo>

#include "levin/core/component.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

std::string failed_place(const Run& run) {
  const EntryPoint& entry = run.entry;
  const bool evaluates = entry.phase != Phase::train && entry.phase != Phase::idle;
  const bool fits = entry.stage == Stage::fit;
  const Hook hook = entry.failed_hook.value_or(entry.place.hook);
  // Between two hooks the error is the run's own.
  std::string text = hook == Hook::none && entry.stage ? enum_word(*entry.stage) : hook_name(hook);
  const auto add = [&](const char* what, int64_t number) { text += what + std::to_string(number); };
  if (entry.sanity_checking) text += ", sanity check";
  if (fits) add(", epoch ", run.progress.epoch);
  const int64_t batch = evaluates ? entry.eval_batch_idx : run.fit.epoch.batch_idx;
  if (batch >= 0) add(", batch ", batch);
  if (evaluates && entry.place.dataloader_idx >= 0) add(", dataloader ", entry.place.dataloader_idx);
  if (fits) add(", global step ", run.progress.global_step);
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
