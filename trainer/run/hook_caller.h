// Calls one hook on all callbacks, then on the module, as Lightning does. The caller notes the
// hook first, so that `log` knows where it was called from.
#pragma once

#include <typeinfo>

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// `object`, noted as the one whose hook is running.
template <class Object>
Object& note_caller(EntryPoint& entry, Object& object) {
  entry.caller = &typeid(object);
  return object;
}

/// `on_callback(callback)` for every callback, then `on_module(module)`.
template <class OnCallback, class OnModule>
void call_hook(EntryPoint& entry, Hook hook, OnCallback on_callback, OnModule on_module) {
  const HookScope scope(entry, hook);
  for (const auto& callback : entry.callbacks) on_callback(note_caller(entry, *callback));
  on_module(note_caller(entry, *entry.module));
}

/// Only the callbacks.
template <class OnCallback>
void call_callbacks(EntryPoint& entry, Hook hook, OnCallback on_callback) {
  const HookScope scope(entry, hook);
  for (const auto& callback : entry.callbacks) on_callback(note_caller(entry, *callback));
}

/// Only the module.
template <class OnModule>
auto call_module(EntryPoint& entry, Hook hook, OnModule on_module) {
  const HookScope scope(entry, hook);
  return on_module(note_caller(entry, *entry.module));
}

/// A hook that takes only the trainer and the module: call_plain(run, Hook::on_fit_start,
/// &Callback::on_fit_start, &LightningModule::on_fit_start).
inline void call_plain(Run& run, Hook hook, void (Callback::*on_callback)(Trainer&, LightningModule&),
                       void (LightningModule::*on_module)()) {
  call_hook(
      run.entry, hook, [&](Callback& callback) { (callback.*on_callback)(run.trainer, *run.entry.module); },
      [&](LightningModule& module) { (module.*on_module)(); });
}

}  // namespace levin
