// Calls one hook on all callbacks, then on the module, as Lightning does. The caller notes the
// hook first, so that `log` knows where it was called from.
#pragma once

#include <exception>
#include <typeinfo>

#include "levin/core/log.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// Records the running hook during its lifetime, and restores the outer one. An exception that propagates is attributed
/// to the innermost hook.
class HookScope {
 public:
  HookScope(EntryPoint& entry, Hook hook) : entry_(entry), outer_(entry.place.hook), outer_caller_(entry.caller) {
    log::hooks.trace("{}", hook_name(hook));
    entry_.place.hook = hook;
    entry_.caller = nullptr;
    entry_.failed_hook.reset();  // an earlier exception was caught by user code
  }
  ~HookScope() {
    if (std::uncaught_exceptions() > 0 && !entry_.failed_hook) entry_.failed_hook = entry_.place.hook;
    entry_.place.hook = outer_;
    entry_.caller = outer_caller_;
  }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  EntryPoint& entry_;
  Hook outer_;
  const std::type_info* outer_caller_;
};

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
