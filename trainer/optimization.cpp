#include "levin/trainer/optimization.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/amax.h>

#include <utility>

#include "levin/core/console.h"
#include "levin/core/gradients.h"
#include "levin/precision/grad_scaler.h"
#include "levin/trainer/fit_loop.h"
#include "levin/trainer/hook_caller.h"
#include "levin/trainer/loss_scaling.h"
#include "levin/trainer/micro_batches.h"
#include "levin/trainer/micro_batching.h"
#include "levin/trainer/module_replicas.h"
#include "levin/trainer/nonfinite_loss.h"
#include "levin/trainer/ranks.h"
#include "levin/trainer/recomputation.h"
#include "levin/trainer/sharded_state.h"
#include "levin/trainer/step_graph.h"
#include "levin/trainer/trainer.h"

namespace levin {

at::Tensor run_training_step(Run& run, const Batch& batch, int64_t batch_idx) {
  run.time_split.enter(StepPart::forward);
  (void)take_loss_weight(run);  // of a step that failed
  const ProfilerScope profile(run.profiler.get(), "training_step");
  const ForwardScope forward(*run.precision, run.strategy->device().type());
  const HookScope scope(run, Hook::training_step);
  at::Tensor loss = run_step(run, batch, ModuleReplicas::Result::loss,
                             [&](LightningModule& m, const Batch& b) { return m.training_step(b, batch_idx); });
  if (run.recomputation) run.recomputation->check_called();
  return loss;
}

void zero_gradients(Run& run) {
  run.time_split.enter(StepPart::optimizer);
  for (auto& wrapped : run.optimizers) {
    Optimizer& optimizer = wrapped.optimizer();
    call_hook(
        run, Hook::on_before_zero_grad,
        [&](Callback& callback) { callback.on_before_zero_grad(run.trainer, *run.module, optimizer); },
        [&](LightningModule& module) { module.on_before_zero_grad(optimizer); });
    run.module->optimizer_zero_grad(optimizer);
  }
}

namespace {

// A window cut short by the end of a loader whose length was not known: its gradients were divided by the full size.
void rescale_gradients(Run& run, double factor) {
  for (auto& wrapped : run.optimizers) {
    const std::vector<at::Tensor> grads = gradients_of(wrapped.optimizer().parameters());
    if (!grads.empty()) at::_foreach_mul_(grads, factor);
  }
}

void before_update(Run& run, Optimizer& optimizer) {
  run.time_split.enter(StepPart::callbacks);
  call_hook(
      run, Hook::on_before_optimizer_step,
      [&](Callback& callback) { callback.on_before_optimizer_step(run.trainer, *run.module, optimizer); },
      [&](LightningModule& module) { module.on_before_optimizer_step(optimizer); });
  run.time_split.enter(StepPart::optimizer);
  const HookScope scope(run, Hook::configure_gradient_clipping);
  run.module->configure_gradient_clipping(optimizer, run.plan.gradient_clip_val, run.plan.gradient_clip_algorithm);
}

// LBFGS and its like evaluate the model several times within one step.
at::Tensor step_with_closure(Run& run, const Batch& batch, int64_t batch_idx) {
  at::Tensor first_loss;
  Optimizer& optimizer = run.optimizers[0].optimizer();
  optimizer.step([&] {
    at::Tensor loss = run_training_step(run, batch, batch_idx);
    check_loss(loss);
    if (take_loss_weight(run).defined()) {
      throw Error("set_loss_weight: " + optimizer.name() +
                  " evaluates one batch several times for an update, and the batch has nothing beside it to be weighed "
                  "against. Drop the call, or use another optimizer.");
    }
    // Later evaluations are trial points of a line search, which may be anything.
    if (!first_loss.defined() && loss.defined()) (void)keep_if_finite(run, loss);
    zero_gradients(run);
    if (loss.defined()) run_backward(run, loss, true);
    before_update(run, optimizer);
    if (!first_loss.defined()) first_loss = loss;
    return loss;
  });
  return first_loss;
}

// Where ranks share out what is updated, the optimizer sees its rank's part alone.
void step_optimizer(Run& run, Optimizer& optimizer) {
  UpdateScope update(*run.strategy);
  optimizer.step();
  tell_memory(run);
  update.changed();
}

void count_step(Run& run) {
  ++run.progress.global_step;
  ++run.progress.steps_in_epoch;
}

}  // namespace

void check_loss(const at::Tensor& loss) {
  if (!loss.defined()) return;
  if (loss.numel() != 1) {
    throw Error("training_step: the loss must be one number, got " + std::to_string(loss.numel()) +
                " elements. Reduce it, e.g. loss.mean().");
  }
  if (!loss.requires_grad()) {
    throw Error(
        "training_step: the loss has no gradient. Compute it from the module's parameters, without detach() or "
        "NoGradGuard; to train without gradients use set_automatic_optimization(false).");
  }
}

void run_backward(Run& run, const at::Tensor& loss, bool sync) {
  run.time_split.enter(StepPart::callbacks);
  call_hook(
      run, Hook::on_before_backward,
      [&](Callback& callback) { callback.on_before_backward(run.trainer, *run.module, loss); },
      [&](LightningModule& module) { module.on_before_backward(loss); });
  run.time_split.enter(StepPart::backward);
  {
    const ProfilerScope profile(run.profiler.get(), "backward");
    const HookScope scope(run, Hook::backward);
    GradScaler* scaler = run.precision->scaler();
    if (sync) send_notes(run);
    run.strategy->backward(scaler == nullptr ? loss : scaler->scale(loss), sync);
    if (sync) hear_notes(run);
  }
  run.time_split.enter(StepPart::callbacks);
  call_plain(run, Hook::on_after_backward, &Callback::on_after_backward, &LightningModule::on_after_backward);
}

// The step, in order: training_step, zero_grad at the window's start, backward of the loss divided by the window (and
// scaled), and at the window's end unscaling, clipping and the update.
namespace {

// What is added to the gradients: undefined if the batch counts for nothing.
at::Tensor usable_loss(Run& run, const at::Tensor& loss, const at::Tensor& weight) {
  check_loss(loss);
  const at::Tensor weighed = weigh(run, loss, weight);
  return weighed.defined() && !keep_or_note(run, weighed) ? at::Tensor() : weighed;
}

// See Note [What a recorded step leaves to the host] in step_graph.h: the device decides here, and the host reads
// later.
void record_update(Run& run, const at::Tensor& found_inf) {
  StepNotes& notes = *run.recording;
  notes.loss = std::exchange(run.unread_loss, at::Tensor());
  notes.flags = window_flags(run, notes.loss, found_inf);
  Optimizer& optimizer = run.optimizers[0].optimizer();
  before_update(run, optimizer);
  const HookScope scope(run, Hook::optimizer_step);
  if (notes.flags.defined()) {
    optimizer.step_unless(at::amax(notes.flags));
  } else {
    optimizer.step();
  }
}

void update(Run& run, const Window& window) {
  const Progress& progress = run.progress;
  run.time_split.enter(StepPart::optimizer);
  const bool weighted = normalize_gradients(run);
  if (!weighted && !window.size_known && progress.window_seen < progress.window_size) {
    rescale_gradients(run, static_cast<double>(progress.window_size) / static_cast<double>(progress.window_seen));
  }
  const ProfilerScope profile(run.profiler.get(), "optimizer_step");
  GradScaler* scaler = run.precision->scaler();
  at::Tensor found_inf;
  if (scaler != nullptr && !run.optimizers.empty()) {
    found_inf = scaler->unscale_(run.optimizers[0].optimizer().parameters());  // automatic: one optimizer
  }
  if (run.recording != nullptr) return record_update(run, found_inf);
  const Finding finding = read_window(run, found_inf);
  if (finding == Finding::good) {
    for (auto& wrapped : run.optimizers) {
      before_update(run, wrapped.optimizer());
      const HookScope scope(run, Hook::optimizer_step);
      step_optimizer(run, wrapped.optimizer());
    }
  }
  count_window(run, finding);
}

// Forward and backward passes of the micro-batches alternate, so the gradients are zeroed before the first of them, and
// a loss that is not finite is seen when its gradients are there: its update is not made all the same.
at::Tensor step_in_micro_batches(Run& run, const Batch& batch, int64_t batch_idx, const Window& window) {
  if (window.first) zero_gradients(run);
  run.time_split.enter(StepPart::forward);
  const at::Tensor loss = run_micro_batches(run, batch, batch_idx);
  run.time_split.enter(StepPart::callbacks);
  call_plain(run, Hook::on_after_backward, &Callback::on_after_backward, &LightningModule::on_after_backward);
  if (loss.defined()) (void)keep_or_note(run, loss);
  return loss;
}

at::Tensor forward_and_backward(Run& run, const Batch& batch, int64_t batch_idx, const Window& window, bool skipped) {
  if (run.has_peers()) run.strategy->before_forward(window.last);
  if (!skipped && run.strategy->micro_batches() > 1) return step_in_micro_batches(run, batch, batch_idx, window);
  at::Tensor loss = skipped ? at::Tensor() : run_training_step(run, batch, batch_idx);
  const at::Tensor weight = take_loss_weight(run);
  loss = usable_loss(run, loss, weight);
  if (window.first) zero_gradients(run);
  agree_on_weights(run, window.last);
  if (loss.defined()) {
    const at::Tensor counted = counted_loss(run, loss, weight);
    run_backward(run, counted, window.last);
    if (!weight.defined()) return counted.variable_data();  // detached, past the dispatcher
    return loss.detach() / run.progress.window_size;
  }
  if (run.has_peers() && (window.last || run.strategy->has_sharded_weights())) {
    if (window.last) send_notes(run);
    run.strategy->backward_without_loss();  // the others wait for this rank's gradients
    if (window.last) hear_notes(run);
  }
  return loss;
}

}  // namespace

// Lightning: a skipped step moves global_step and the schedulers; here they stay, because nothing was trained.
void count_window(Run& run, Finding finding) {
  if (finding == Finding::nonfinite_loss) return;
  if (finding == Finding::good) count_step(run);
  if (run.precision->scaler() != nullptr) move_scale(run, finding == Finding::overflow);
}

at::Tensor automatic_step(Run& run, const Batch& batch, int64_t batch_idx, const Window& window) {
  const bool skipped = std::exchange(run.skip_batch, false);
  if (window.first) {
    run.unread_loss = at::Tensor();  // of a window that was dropped
    open_loss_weights(run);
  }
  if (!skipped && !run.optimizers.empty() && run.optimizers[0].optimizer().needs_closure()) {
    at::Tensor loss = step_with_closure(run, batch, batch_idx);
    count_step(run);
    return loss.defined() ? loss.detach() : loss;
  }
  at::Tensor loss = run.micro_batching != nullptr ? run.micro_batching->step(batch, batch_idx, window, skipped)
                                                  : forward_and_backward(run, batch, batch_idx, window, skipped);
  if (!window.last) return loss;
  if (!run.progress.window_spoilt) update(run, window);
  run.progress.window_spoilt = false;
  return loss;
}

at::Tensor manual_step(Run& run, const Batch& batch, int64_t batch_idx) {
  if (std::exchange(run.skip_batch, false)) return {};
  run.batch_overflowed.reset();  // of a batch that failed
  if (run.has_peers()) run.strategy->before_forward(true);
  at::Tensor result = run_training_step(run, batch, batch_idx);
  move_scale_of_batch(run);
  return result.defined() ? result.detach() : result;
}

void LightningOptimizer::step(const Optimizer::Closure& closure) {
  Run& run = *trainer_->run_;
  if (closure) return step_with(closure);
  run.time_split.enter(StepPart::optimizer);
  unscale_gradients();
  const bool overflow = read_window(run, std::exchange(found_inf_, at::Tensor())) == Finding::overflow;
  run.batch_overflowed = run.batch_overflowed.value_or(false) || overflow;
  stepped_in_batch_ = true;
  if (overflow) {
    ++run.progress.skipped_steps;
  } else {
    before_update(run, *optimizer_);
    step_optimizer(run, *optimizer_);
    count_step(run);
  }
  run.time_split.enter(StepPart::forward);  // what is left of training_step
}

void LightningOptimizer::step_with(const Optimizer::Closure& closure) {
  Run& run = *trainer_->run_;
  if (run.precision->scaler() != nullptr) {
    throw Error(optimizer_->name() + ": step(closure) is not possible with " + run.precision->name() +
                ", which has to look at the gradients between the closure and the update. Call manual_backward and "
                "then step(), or use bf16-mixed.");
  }
  optimizer_->step([&] {
    at::Tensor loss = closure();
    (void)read_window(run, {});
    before_update(run, *optimizer_);
    return loss;
  });
  run.time_split.enter(StepPart::forward);
  count_step(run);
}

void LightningOptimizer::zero_grad() {
  optimizer_->zero_grad();
  found_inf_ = at::Tensor();
}

void LightningOptimizer::unscale_gradients() {
  GradScaler* scaler = trainer_->run_->precision->scaler();
  if (scaler != nullptr && !found_inf_.defined()) found_inf_ = scaler->unscale_(optimizer_->parameters());
}

bool LightningOptimizer::end_batch() {
  return std::exchange(stepped_in_batch_, false) || found_inf_.defined();
}

namespace {

// Frequency counts optimizer steps within the epoch, or epochs.
// Lightning: it tests the batch index, so that accumulation can starve a scheduler; here: optimizer steps are counted,
// because a step interval means steps.
bool is_due(const Run& run, const LRSchedulerOptions& options, Interval interval) {
  if (options.interval != interval) return false;
  const int64_t count = interval == Interval::step ? run.progress.steps_in_epoch : run.progress.epoch + 1;
  return count % options.frequency == 0;
}

std::optional<double> monitored_value(Run& run, const LRSchedulerConfig& config) {
  run.refresh_callback_metrics();
  const auto found = run.callback_metrics.find(config.options.monitor);
  if (found != run.callback_metrics.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, value] : run.callback_metrics) names.push_back(name);
  const std::string what = config.scheduler->name() + ": metric \"" + config.options.monitor +
                           "\" was never logged by epoch " + std::to_string(run.progress.epoch) +
                           ". Logged: " + join(names) + "." + did_you_mean(config.options.monitor, names);
  if (config.options.strict) throw Error(what + " Log it, set .monitor, or set .strict to false.");
  Console::instance().warn(what + " The learning rate stays as it is.");
  return std::nullopt;
}

// How often the whole fit moves a scheduler; kUnlimited if that is not known.
int64_t scheduled_steps(const Run& run, const LRSchedulerOptions& options) {
  const int64_t steps = run.trainer.estimated_stepping_batches();
  const int64_t batches = run.trainer.num_training_batches();
  const int64_t every = options.frequency;
  if (batches == kUnlimited || batches == 0) {
    const int64_t count = options.interval == Interval::step ? steps : run.plan.max_epochs;
    return count == kUnlimited ? kUnlimited : count / every;
  }
  if (steps == kUnlimited) return kUnlimited;
  const int64_t an_epoch = windows_in(batches, run.progress.accumulate);
  if (options.interval == Interval::epoch) return windows_in(steps, an_epoch) / every;
  return steps / an_epoch * (an_epoch / every) + steps % an_epoch / every;
}

void fill_total_steps(const Run& run, LRScheduler& scheduler, const LRSchedulerOptions& options) {
  if (!scheduler.wants_total_steps() || !run.module->automatic_optimization()) return;
  const int64_t steps = scheduled_steps(run, options);
  if (steps == kUnlimited) {
    throw ConfigError(scheduler.name() +
                      ".total_steps: it is unset, and the length of the fit is not known either. Set total_steps, or "
                      "TrainerOptions.max_steps, or max_epochs with a training loader of known length.");
  }
  if (steps > 0) scheduler.fill_total_steps(steps);
}

}  // namespace

void attach_schedulers(Run& run) {
  for (auto& config : run.schedulers) {
    if (config.scheduler->attached()) continue;
    fill_total_steps(run, *config.scheduler, config.options);
    config.scheduler->attach(run.optimizers[config.optimizer_index].optimizer());
  }
}

void step_schedulers(Run& run, Interval interval, bool plateau) {
  for (auto& config : run.schedulers) {
    if (config.scheduler->wants_metric() != plateau || !is_due(run, config.options, interval)) continue;
    std::optional<double> metric;
    if (plateau) {
      metric = monitored_value(run, config);
      if (!metric) continue;
    }
    const HookScope scope(run, Hook::lr_scheduler_step);
    run.module->lr_scheduler_step(*config.scheduler, metric);
  }
}

}  // namespace levin
