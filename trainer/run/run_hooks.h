// Connects the steps of a run with the hooks of its callbacks and its module, and makes its step engine.
#pragma once

#include <memory>

#include "levin/trainer/run/run.h"
#include "levin/trainer/step/step_engine.h"
#include "levin/trainer/step/step_hooks.h"

namespace levin {

/// Calls callbacks, then the module; logs to the running loop's metrics; acts on the flags that ranks exchange.
class RunHooks final : public StepHooks {
 public:
  explicit RunHooks(Run& run) : run_(run) {}

  void on_before_zero_grad(Optimizer& optimizer) override;
  void on_before_backward(const at::Tensor& loss) override;
  void on_after_backward() override;
  void on_before_optimizer_step(Optimizer& optimizer) override;

  void log(std::string_view name, const at::Tensor& value, const LogOptions& options) override;
  void log(std::string_view name, double value, const LogOptions& options) override;
  void log(std::string_view name, metrics::Metric& metric, const LogOptions& options) override;
  void log_replayed(Hook hook, std::string_view name, const at::Tensor& value, const LogOptions& options) override;

  [[nodiscard]] RankFlags flags_to_send() override;
  void receive(const RankFlags& flags) override;

  void device_is_busy() override;
  void in_sharded_update() override;

 private:
  Run& run_;
};

/// Returns an engine for the run's module, by the plan and the fit's own settings. It has no optimizers yet.
[[nodiscard]] std::shared_ptr<StepEngine> make_engine(Run& run);

}  // namespace levin
