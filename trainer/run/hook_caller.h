// Calls a hook on all callbacks, then on the module, as Lightning does. The hook is recorded first, so that `log` knows
// where it was called.
#pragma once

#include <typeinfo>

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// Records `object` as the one whose hook is running, and returns it.
template <class Object>
Object& note_caller(EntryPoint& entry, Object& object) {
  entry.caller = &typeid(object);
  return object;
}

/// Calls `on_callback(callback)` for every callback, then `on_module(module)`.
template <class OnCallback, class OnModule>
void call_hook(EntryPoint& entry, Hook hook, OnCallback on_callback, OnModule on_module) {
  const HookScope scope(entry, hook);
  for (const auto& callback : entry.callbacks) on_callback(note_caller(entry, *callback));
  on_module(note_caller(entry, *entry.module));
}

/// Calls a hook of the callbacks only.
template <class OnCallback>
void call_callbacks(EntryPoint& entry, Hook hook, OnCallback on_callback) {
  const HookScope scope(entry, hook);
  for (const auto& callback : entry.callbacks) on_callback(note_caller(entry, *callback));
}

/// Calls a hook of the module only, and returns its result.
template <class OnModule>
auto call_module(EntryPoint& entry, Hook hook, OnModule on_module) {
  const HookScope scope(entry, hook);
  return on_module(note_caller(entry, *entry.module));
}

/// Calls a hook that takes only the trainer and the module: call_plain(run, Hook::on_fit_start,
/// &Callback::on_fit_start, &LightningModule::on_fit_start).
inline void call_plain(Run& run, Hook hook, void (Callback::*on_callback)(Trainer&, LightningModule&),
                       void (LightningModule::*on_module)()) {
  call_hook(
      run.entry, hook, [&](Callback& callback) { (callback.*on_callback)(run.trainer, *run.entry.module); },
      [&](LightningModule& module) { (module.*on_module)(); });
}

}  // namespace levin
