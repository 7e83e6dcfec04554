#include "levin/trainer/fit_loop.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "levin/trainer/evaluation_loop.h"
#include "levin/trainer/hook_caller.h"
#include "levin/trainer/loader_set.h"
#include "levin/trainer/optimization.h"
#include "levin/trainer/random_state.h"

namespace levin {

int64_t validation_interval(const RunPlan& plan, int64_t num_training_batches) {
  const auto* batches = std::get_if<int64_t>(&plan.val_check_interval);
  if (batches != nullptr) {
    if (*batches > num_training_batches && plan.check_val_every_n_epoch) {
      throw ConfigError(
          "TrainerOptions.val_check_interval: " + std::to_string(*batches) + " is more than the " +
          std::to_string(num_training_batches) +
          " training batches of an epoch. Use a smaller number, or check_val_every_n_epoch: null to count "
          "batches across epochs.");
    }
    return std::max<int64_t>(1, *batches);
  }
  const double share = std::get<double>(plan.val_check_interval);
  if (num_training_batches == kUnlimited) {
    if (share == 1.0) return kUnlimited;
    throw ConfigError("TrainerOptions.val_check_interval: a share (" + number_text(share) +
                      ") of a loader of unknown length is not known either. Use a number of batches.");
  }
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(static_cast<double>(num_training_batches) * share)));
}

void FitLoop::run() {
  sanity_check();
  prepare_loaders();
  if (is_done() || run_.train.num_batches[0] == 0) return;
  run_.accumulate = run_.plan.accumulate_grad_batches;
  run_.phase = Phase::train;
  call_plain(run_, Hook::on_train_start, &Callback::on_train_start, &LightningModule::on_train_start);
  while (!is_done()) {
    start_epoch();
    train_epoch();
    end_epoch();
  }
  call_plain(run_, Hook::on_train_end, &Callback::on_train_end, &LightningModule::on_train_end);
}

bool FitLoop::must_stop() const {
  return run_.stop && run_.min_limits_met();
}

bool FitLoop::is_done() const {
  return run_.progress.global_step >= run_.plan.max_steps || run_.progress.epoch >= run_.plan.max_epochs || must_stop();
}

void FitLoop::sanity_check() {
  const bool resumed_inside_epoch = run_.progress.first_batch > 0;
  if (run_.plan.num_sanity_val_steps == 0 || resumed_inside_epoch || is_done() || !has_validation_hooks(run_)) return;
  const RandomState random_state;  // restored at the end: training must not depend on the check
  run_.sanity_checking = true;
  call_callbacks(run_, Hook::on_sanity_check_start,
                 [&](Callback& callback) { callback.on_sanity_check_start(run_.trainer, *run_.module); });
  load_eval_loaders(run_, Stage::validate);
  EvaluationLoop(run_, Stage::validate).run(run_.plan.num_sanity_val_steps);
  call_callbacks(run_, Hook::on_sanity_check_end,
                 [&](Callback& callback) { callback.on_sanity_check_end(run_.trainer, *run_.module); });
  run_.eval_metrics.reset();
  run_.callback_metrics.clear();
  run_.logged_metrics.clear();
  run_.bar_metrics.clear();
  run_.eval_batches_seen.clear();
  run_.sanity_checking = false;
}

void FitLoop::prepare_loaders() {
  load_train_loader(run_);
  if (has_validation_hooks(run_) && !run_.eval.loaded) load_eval_loaders(run_, Stage::validate);
  if (!run_.eval.loaders.empty()) (void)validation_interval(run_.plan, run_.train.num_batches[0]);
}

void FitLoop::start_epoch() {
  const int64_t every = run_.plan.reload_dataloaders_every_n_epochs;
  if (every > 0 && run_.progress.epoch - run_.train_loaded_in_epoch >= every) load_train_loader(run_);
  const bool resumed = run_.progress.first_batch > 0;
  run_.progress.batch_idx = run_.progress.first_batch - 1;
  run_.progress.done_batches = run_.progress.first_batch;
  if (!resumed) run_.progress.steps_in_epoch = 0;
  run_.epoch_cut = false;
  run_.last_batch_of_epoch = false;
  run_.train_on_step = true;
  run_.train_metrics.reset();
  run_.place = {Hook::none, 1, -1, 1};
  window_seen_ = 0;
  if (resumed) return;  // the epoch began before the run was interrupted
  call_plain(run_, Hook::on_train_epoch_start, &Callback::on_train_epoch_start, &LightningModule::on_train_epoch_start);
}

void FitLoop::train_epoch() {
  BatchStream stream(*run_.train.loaders[0], run_.train.num_batches[0]);
  {
    const ProfilerScope profile(run_.profiler.get(), "train_dataloader_start");
    stream.start(run_.progress.epoch, std::exchange(run_.progress.first_batch, 0));
  }
  run_.last_batch_of_epoch = stream.index() + 1 >= run_.train.num_batches[0];  // all were seen before the restart
  Batch batch;
  while (true) {
    {
      const ProfilerScope profile(run_.profiler.get(), "train_dataloader_next");
      if (!stream.next(batch)) break;
    }
    const ProfilerScope profile(run_.profiler.get(), "run_training_batch");
    train_batch(stream, batch);
    if (run_.epoch_cut || run_.progress.global_step >= run_.plan.max_steps || must_stop()) break;
  }
}

void FitLoop::train_batch(BatchStream& stream, const Batch& fetched) {
  Progress& progress = run_.progress;
  progress.batch_idx = stream.index();
  run_.last_batch_of_epoch = stream.is_last();
  run_.place = {Hook::none, std::max<int64_t>(1, fetched.size()), 0, 1};
  const Batch batch = transfer_batch(run_, fetched, 0);
  call_hook(
      run_, Hook::on_train_batch_start,
      [&](Callback& c) { c.on_train_batch_start(run_.trainer, *run_.module, batch, progress.batch_idx); },
      [&](LightningModule& m) { m.on_train_batch_start(batch, progress.batch_idx); });

  // Note [Size of an accumulation window]
  // The last window of an epoch may hold fewer batches; its mean is over those it holds, so that N micro-batches are
  // always one big batch. Lightning: divides by accumulate_grad_batches whatever the window holds.
  const int64_t left =
      run_.train.num_batches[0] == kUnlimited ? kUnlimited : run_.train.num_batches[0] - progress.batch_idx;
  if (window_seen_ == 0) window_size_ = std::min(run_.accumulate, left);
  ++window_seen_;
  const bool window_ends = window_seen_ == window_size_ || stream.is_last();
  const Window window{window_size_, window_seen_ == 1, window_ends, left != kUnlimited, window_seen_};
  const bool automatic = run_.module->automatic_optimization();
  const at::Tensor loss = automatic ? automatic_step(run_, batch, progress.batch_idx, window)
                                    : manual_step(run_, batch, progress.batch_idx);
  if (window_ends) window_seen_ = 0;
  if (window_ends) progress.window_is_done();

  if (automatic && window_ends) step_schedulers(run_, Interval::step, false);
  if (automatic && stream.is_last()) step_schedulers(run_, Interval::epoch, false);
  call_hook(
      run_, Hook::on_train_batch_end,
      [&](Callback& c) { c.on_train_batch_end(run_.trainer, *run_.module, loss, batch, progress.batch_idx); },
      [&](LightningModule& m) { m.on_train_batch_end(loss, batch, progress.batch_idx); });
  ++progress.total_batches;
  if (window_ends) write_step_metrics();
  if (validation_is_due()) {
    if (window_ends) call_module(run_, Hook::none, [](LightningModule& m) { m.on_validation_model_zero_grad(); });
    const auto place = run_.place;
    EvaluationLoop(run_, Stage::validate).run(kUnlimited);
    run_.phase = Phase::train;
    run_.place = place;
  }
  if (automatic && window_ends) step_schedulers(run_, Interval::step, true);
  if (window_ends) ++progress.windows;
}

bool FitLoop::epoch_validates() const {
  const auto& every = run_.plan.check_val_every_n_epoch;
  return !run_.eval.loaders.empty() && (!every || (run_.progress.epoch + 1) % *every == 0);
}

bool FitLoop::validation_is_due() const {
  if (!epoch_validates()) return false;
  if (must_stop()) return true;
  const bool ends_epoch = run_.last_batch_of_epoch || run_.epoch_cut;
  const int64_t interval = validation_interval(run_.plan, run_.train.num_batches[0]);
  if (interval == kUnlimited) return ends_epoch;
  if (!run_.plan.check_val_every_n_epoch) return run_.progress.total_batches % interval == 0;
  return (run_.progress.batch_idx + 1) % interval == 0 || run_.epoch_cut;
}

void FitLoop::write_step_metrics() {
  const int64_t every = run_.plan.log_every_n_steps;
  if (run_.loggers.empty() || every == 0) return;
  const bool due = (run_.progress.windows + 1) % every == 0 || run_.stop;
  if (due) run_.write_metrics(run_.train_metrics.logged(true));
}

void FitLoop::end_epoch() {
  const bool automatic = run_.module->automatic_optimization();
  // Of an epoch that ran to its end they have moved in its last batch.
  const bool cut = run_.epoch_cut && !run_.last_batch_of_epoch;
  if (automatic && cut) step_schedulers(run_, Interval::epoch, false);
  run_.refresh_callback_metrics();  // the last step's values, before the epoch's take their plain names
  run_.train_on_step = false;
  ++run_.progress.processed;
  run_.place = {Hook::none, 1, -1, 1};
  {
    const HookScope scope(run_, Hook::on_train_epoch_end);
    // Those that monitor a metric run after the module, so that they see what its on_train_epoch_end logged.
    for (const auto& c : run_.callbacks) {
      if (!c->is_monitoring()) c->on_train_epoch_end(run_.trainer, *run_.module);
    }
    run_.module->on_train_epoch_end();
    for (const auto& c : run_.callbacks) {
      if (c->is_monitoring()) c->on_train_epoch_end(run_.trainer, *run_.module);
    }
  }
  if (automatic && (cut || run_.last_batch_of_epoch)) step_schedulers(run_, Interval::epoch, true);
  run_.refresh_callback_metrics();
  // Loggers count completed windows from 0, so the epoch's row stands at its last one.
  run_.write_metrics(run_.train_metrics.logged(false), std::max<int64_t>(0, run_.progress.windows - 1), true);
  for (const auto& logger : run_.loggers) logger->save();  // what a killed run leaves is whole up to its last epoch
  run_.train_metrics.reset();
  ++run_.progress.epoch;
  run_.progress.done_batches = 0;
}

}  // namespace levin
