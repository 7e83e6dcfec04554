// Calls one hook on everybody who has it, callbacks first, then the module, as Lightning does. The caller notes the
// hook first, so that `log` knows where it was called from.
#pragma once

#include <exception>
#include <typeinfo>

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// Notes the running hook while it lives; the outer hook is back afterwards. An exception that passes is noted as the
/// innermost hook's.
class HookScope {
 public:
  HookScope(Run& run, Hook hook) : run_(run), outer_(run.entry.place.hook), outer_caller_(run.entry.caller) {
    run_.entry.place.hook = hook;
    run_.entry.caller = nullptr;
    run_.entry.failed_hook.reset();  // an earlier exception was caught by user code
  }
  ~HookScope() {
    if (std::uncaught_exceptions() > 0 && !run_.entry.failed_hook) run_.entry.failed_hook = run_.entry.place.hook;
    run_.entry.place.hook = outer_;
    run_.entry.caller = outer_caller_;
  }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  Run& run_;
  Hook outer_;
  const std::type_info* outer_caller_;
};

/// `object`, noted as the one whose hook is running.
template <class Object>
Object& note_caller(Run& run, Object& object) {
  run.entry.caller = &typeid(object);
  return object;
}

/// `on_callback(callback)` for every callback, then `on_module(module)`.
template <class OnCallback, class OnModule>
void call_hook(Run& run, Hook hook, OnCallback on_callback, OnModule on_module) {
  const HookScope scope(run, hook);
  for (const auto& callback : run.entry.callbacks) on_callback(note_caller(run, *callback));
  on_module(note_caller(run, *run.entry.module));
}

/// Only the callbacks.
template <class OnCallback>
void call_callbacks(Run& run, Hook hook, OnCallback on_callback) {
  const HookScope scope(run, hook);
  for (const auto& callback : run.entry.callbacks) on_callback(note_caller(run, *callback));
}

/// Only the module.
template <class OnModule>
auto call_module(Run& run, Hook hook, OnModule on_module) {
  const HookScope scope(run, hook);
  return on_module(note_caller(run, *run.entry.module));
}

/// A hook that takes nothing but the trainer and the module: call_plain(run, Hook::on_fit_start,
/// &Callback::on_fit_start, &LightningModule::on_fit_start).
inline void call_plain(Run& run, Hook hook, void (Callback::*on_callback)(Trainer&, LightningModule&),
                       void (LightningModule::*on_module)()) {
  call_hook(
      run, hook, [&](Callback& callback) { (callback.*on_callback)(run.trainer, *run.entry.module); },
      [&](LightningModule& module) { (module.*on_module)(); });
}

}  // namespace levin
