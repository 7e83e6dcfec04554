#include "levin/trainer/run/run_hooks.h"

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "levin/core/options/registry.h"
#include "levin/core/process/console.h"
#include "levin/trainer/held_memory.h"
#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/step/override.h"

namespace levin {

namespace {

bool acts_before_update(const Run& run) {
  using M = LightningModule;
  const auto& callbacks = run.entry.callbacks;
  const auto acts = [](const auto& callback) {
    return detail::overrides<Callback>(*callback, &Callback::on_before_optimizer_step);
  };
  return detail::overrides<M>(*run.entry.module, &M::on_before_optimizer_step) ||
         detail::overrides<M>(*run.entry.module, &M::configure_gradient_clipping) ||
         std::any_of(callbacks.begin(), callbacks.end(), acts);
}

// The class of a callback whose hook would run only once if it were inside a recorded step; "": there is none.
std::string acts_inside_step(const Run& run) {
  using C = Callback;
  for (const auto& callback : run.entry.callbacks) {
    if (detail::overrides<C>(*callback, &C::on_before_zero_grad) ||
        detail::overrides<C>(*callback, &C::on_before_backward) ||
        detail::overrides<C>(*callback, &C::on_after_backward)) {
      return detail::readable_type_name(typeid(*callback));
    }
  }
  return "";
}

}  // namespace

void RunHooks::on_before_zero_grad(Optimizer& optimizer) {
  call_hook(
      run_.entry, Hook::on_before_zero_grad,
      [&](Callback& callback) { callback.on_before_zero_grad(run_.trainer, *run_.entry.module, optimizer); },
      [&](LightningModule& module) { module.on_before_zero_grad(optimizer); });
}

void RunHooks::on_before_backward(const at::Tensor& loss) {
  call_hook(
      run_.entry, Hook::on_before_backward,
      [&](Callback& callback) { callback.on_before_backward(run_.trainer, *run_.entry.module, loss); },
      [&](LightningModule& module) { module.on_before_backward(loss); });
}

void RunHooks::on_after_backward() {
  call_plain(run_, Hook::on_after_backward, &Callback::on_after_backward, &LightningModule::on_after_backward);
}

void RunHooks::on_before_optimizer_step(Optimizer& optimizer) {
  call_hook(
      run_.entry, Hook::on_before_optimizer_step,
      [&](Callback& callback) { callback.on_before_optimizer_step(run_.trainer, *run_.entry.module, optimizer); },
      [&](LightningModule& module) { module.on_before_optimizer_step(optimizer); });
}

void RunHooks::log(std::string_view name, const at::Tensor& value, const LogOptions& options) {
  run_.log_metric(name, value, options);
}

void RunHooks::log(std::string_view name, double value, const LogOptions& options) {
  run_.log_metric(name, value, options);
}

void RunHooks::log(std::string_view name, metrics::Metric& metric, const LogOptions& options) {
  run_.log_metric(name, metric, options);
}

void RunHooks::log_replayed(Hook hook, std::string_view name, const at::Tensor& value, const LogOptions& options) {
  MetricStore::Place place = run_.entry.place;
  place.hook = hook;
  run_.store().log(place, name, value, options);
  if (run_.entry.phase == Phase::train) run_.note_logged(name);
}

RankFlags RunHooks::flags_to_send() {
  RankFlags own = std::exchange(run_.fit.flags_to_send, RankFlags());
  if (run_.entry.stop) own.add(RankFlag::stop);
  if (run_.fit.epoch.cut_wanted) own.add(RankFlag::cut_epoch);
  return own;
}

void RunHooks::receive(const RankFlags& flags) {
  run_.fit.received_flags |= flags;
  if (run_.fit.received_flags.take(RankFlag::stop)) run_.entry.stop_agreed = true;
  if (run_.fit.received_flags.take(RankFlag::cut_epoch)) run_.fit.epoch.cut = true;
}

void RunHooks::device_is_busy() {
  if (run_.fit.batches != nullptr) run_.fit.batches->send_ahead();
}

void RunHooks::in_sharded_update() {
  if (std::exchange(run_.fit.reported_memory, true)) return;
  for (auto& each : run_.fit.optimizers()) each.optimizer().check_layouts(each.optimizer().state_dict());
  if (run_.strategy->ranks().rank() != 0) return;
  Console::instance().print(run_.strategy->sharding().sharding_text() + ": rank 0 of " +
                            std::to_string(run_.strategy->ranks().world_size()) + " holds " +
                            held_memory(run_.trainer).str() + ".");
}

std::shared_ptr<StepEngine> make_engine(Run& run) {
  if (run.step_hooks == nullptr) run.step_hooks = std::make_shared<RunHooks>(run);
  EntryPoint& entry = run.entry;
  return std::make_shared<StepEngine>(
      StepParts{.module = *entry.module,
                .strategy = *run.strategy,
                .precision = *run.precision,
                .hooks = *run.step_hooks,
                .running = entry,
                .counters = run.progress,
                .time_split = entry.time_split,
                .outputs = entry.outputs,
                .replicas = entry.replicas,
                .recomputation = entry.recomputation,
                .profiler = run.profiler.get(),
                .settings = {.nonfinite_loss = run.fit.nonfinite_loss,
                             .gradient_clip_val = run.plan.gradient_clip_val,
                             .gradient_clip_algorithm = run.plan.gradient_clip_algorithm,
                             .micro_batch_size = run.plan.micro_batch_size,
                             .record_steps = run.plan.record_steps,
                             .sync_batchnorm = run.options.sync_batchnorm,
                             .detect_anomaly = run.plan.detect_anomaly,
                             .acts_before_update = acts_before_update(run),
                             .acts_inside_step = acts_inside_step(run)}});
}

}  // namespace levin
