// What the steps of a StepEngine call outside of it: the hooks around the parts of a step, the destination of logged
// values, and the source of the flags that ranks exchange. The trainer implements it (run/run_hooks.h); by default
// nothing happens.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <exception>
#include <optional>
#include <string_view>
#include <typeinfo>

#include "levin/core/process/log.h"
#include "levin/strategies/gradient_sync.h"
#include "levin/trainer/hook.h"
#include "levin/trainer/metrics.h"

namespace levin {

class Optimizer;

/// The hook that is running: where `log` was called, and which one an exception has come from.
struct RunningHook {
  MetricStore::Place place = {};
  std::optional<Hook> failed_hook = std::nullopt;  // the innermost hook that an exception has propagated from
  const std::type_info* caller = nullptr;          // the class whose hook is running; null: the module's, or not known
};

/// A scope that records the running hook, and restores the outer one. An exception that propagates is attributed to the
/// innermost hook.
class HookScope {
 public:
  HookScope(RunningHook& running, Hook hook)
      : running_(running), outer_(running.place.hook), outer_caller_(running.caller) {
    log::hooks.trace("{}", hook_name(hook));
    running_.place.hook = hook;
    running_.caller = nullptr;
    running_.failed_hook.reset();  // an earlier exception was caught by user code
  }
  ~HookScope() {
    if (std::uncaught_exceptions() > 0 && !running_.failed_hook) running_.failed_hook = running_.place.hook;
    running_.place.hook = outer_;
    running_.caller = outer_caller_;
  }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  RunningHook& running_;
  Hook outer_;
  const std::type_info* outer_caller_;
};

/// The surroundings of an engine's steps.
class StepHooks {
 public:
  virtual ~StepHooks() = default;

  virtual void on_before_zero_grad(Optimizer& /*optimizer*/) {}
  /// `loss`: () before scaling.
  virtual void on_before_backward(const at::Tensor& /*loss*/) {}
  virtual void on_after_backward() {}
  virtual void on_before_optimizer_step(Optimizer& /*optimizer*/) {}

  /// Logs a value of a whole batch, in the running hook.
  virtual void log(std::string_view /*name*/, const at::Tensor& /*value*/, const LogOptions& /*options*/) {}
  virtual void log(std::string_view /*name*/, double /*value*/, const LogOptions& /*options*/) {}
  virtual void log(std::string_view /*name*/, metrics::Metric& /*metric*/, const LogOptions& /*options*/) {}
  /// Logs a value that a replayed step has logged in `hook`.
  virtual void log_replayed(Hook /*hook*/, std::string_view /*name*/, const at::Tensor& /*value*/,
                            const LogOptions& /*options*/) {}

  /// Returns the flags that this rank sends with the next gradients that ranks reduce.
  [[nodiscard]] virtual RankFlags flags_to_send() { return {}; }
  /// Takes the flags of all ranks, except flags about losses, which the engine handles.
  virtual void receive(const RankFlags& /*flags*/) {}

  /// Called while the device has a step to compute, so that the host can do other work, such as copying the next batch.
  virtual void device_is_busy() {}
  /// Called after an update of weights that are sharded over ranks; parameters are still this rank's shards.
  virtual void in_sharded_update() {}
};

}  // namespace levin
