#include "levin/trainer/loops/fit_loop.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/trainer/loops/evaluation_loop.h"
#include "levin/trainer/loops/fit_warnings.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/averaging_optimizers.h"
#include "levin/trainer/run/fit_length.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/lr_schedulers.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run_reporter.h"
#include "levin/trainer/state/checkpoint.h"
#include "levin/trainer/state/loader_state.h"
#include "levin/trainer/state/rollback.h"
#include "levin/trainer/state/run_records.h"

namespace levin {

void FitLoop::run() {
  sanity_check();
  prepare_loaders();
  const bool inside_epoch = run_.fit.epoch.running;  // an epoch that has begun is completed regardless of limits
  if (run_.fit.train.loaders.empty() || (is_done() && !inside_epoch)) return train_nothing();
  if (!run_.fit.resumed) run_.set_accumulation(run_.fit.planned_accumulation);
  plan_recomputation(run_);
  renew_records(run_);
  run_.entry.phase = Phase::train;
  expect_monitors(run_);
  call_plain(run_, Hook::on_train_start, &Callback::on_train_start, &LightningModule::on_train_start);
  continue_random_numbers();
  validation_.restart_clock();
  memory_keeping_ = MemoryKeeping::of(run_);
  thread_tuning_ = ThreadTuning::of(run_);
  do {
    const bool resumed = std::exchange(run_.fit.resumed, false) && run_.fit.epoch.running;
    if (!is_done()) outside_.stop_if_due(/*inside_epoch=*/resumed);
    if (!resumed) start_epoch();
    train_epoch(resumed);
    end_epoch();
  } while (!is_done());
  end_training();
}

std::optional<MeasuredFit> FitLoop::measure(int64_t replicas) {
  sanity_check();
  prepare_loaders();
  if (run_.fit.train.loaders.empty()) return std::nullopt;
  return measure_fit(run_, replicas);
}

void FitLoop::end_training() {
  keep_averages(run_);
  call_plain(run_, Hook::on_train_end, &Callback::on_train_end, &LightningModule::on_train_end);
  capture_checkpoints(run_);
}

// A run that was killed after its last epoch, but before on_train_end was done (a last checkpoint, an average of
// weights): when it resumes automatically, it does that. Lightning does nothing.
void FitLoop::train_nothing() {
  Console::instance().print("Nothing to train: " + why_nothing_is_trained(run_));
  keep_averages(run_);
  if (run_.fit.train.loaders.empty() || !run_.fit.resumed || !run_.auto_resume) return;
  continue_random_numbers();
  end_training();
}

bool FitLoop::must_stop() const {
  return run_.stops() && run_.min_limits_met();
}

bool FitLoop::is_done() const {
  return run_.progress.global_step >= run_.plan.max_steps || run_.progress.epoch >= run_.plan.max_epochs || must_stop();
}

void FitLoop::sanity_check() {
  if (run_.plan.num_sanity_val_steps == 0 || run_.fit.epoch.running || is_done() ||
      !has_validation_hooks(run_.plan, run_.entry))
    return;
  const RandomState random_state;  // restored at the end, because training must not depend on the check
  const auto logged = std::tuple(std::exchange(run_.entry.callback_metrics, {}), run_.entry.measured_at,
                                 run_.logged_metrics, run_.entry.bar_metrics, run_.eval_batches_seen);
  run_.entry.sanity_checking = true;
  run_.entry.before_validation = run_state(run_);
  call_callbacks(run_.entry, Hook::on_sanity_check_start,
                 [&](Callback& callback) { callback.on_sanity_check_start(run_.trainer, *run_.entry.module); });
  load_eval_loaders(run_, Stage::validate);
  EvaluationLoop(run_, Stage::validate, &outside_).run(run_.plan.num_sanity_val_steps);
  call_callbacks(run_.entry, Hook::on_sanity_check_end,
                 [&](Callback& callback) { callback.on_sanity_check_end(run_.trainer, *run_.entry.module); });
  if (run_.trainer.has_validation()) {
    auto& names = run_.fit.sanity_metrics.emplace();
    for (const auto& [name, value] : run_.entry.callback_metrics) names.insert(name);
  }
  run_.entry.eval_metrics.reset();
  std::tie(run_.entry.callback_metrics, run_.entry.measured_at, run_.logged_metrics, run_.entry.bar_metrics,
           run_.eval_batches_seen) = logged;
  run_.entry.before_validation.reset();
  run_.entry.sanity_checking = false;
}

bool FitLoop::train_loader_is_due() const {
  const int64_t every = run_.plan.reload_dataloaders_every_n_epochs;
  return every > 0 && run_.progress.epoch - run_.fit.train_loaded_in_epoch >= every;
}

void FitLoop::continue_random_numbers() {
  restore_random_numbers(run_);
  if (numbers_after_loading_) restore_random_state(*std::exchange(numbers_after_loading_, std::nullopt));
}

void FitLoop::prepare_loaders() {
  const int64_t loaded_in_epoch = run_.fit.train_loaded_in_epoch;
  // The epoch that a run continues with makes its loader anew: that is this one, made with the same random numbers.
  const bool is_of_new_epoch = run_.fit.resumed && !run_.fit.epoch.running && train_loader_is_due();
  if (is_of_new_epoch) restore_random_numbers(run_);
  load_train_loader(run_);
  if (is_of_new_epoch) {
    numbers_after_loading_ = random_state();
  } else if (run_.fit.resumed) {
    run_.fit.train_loaded_in_epoch = loaded_in_epoch;  // reloads happen when they would have happened
    restore_loader_state(run_);
  }
  if (has_validation_hooks(run_.plan, run_.entry) && !run_.entry.eval.loaded) {
    const RandomState random_state;  // as in the sanity check, which loads them otherwise
    load_eval_loaders(run_, Stage::validate);
  }
  if (run_.fit.train.loaders.empty()) return;
  validation_.use_loader();
  warn_of_unlogged_epochs(run_);
}

void FitLoop::start_epoch() {
  if (train_loader_is_due()) {
    load_train_loader(run_);
    validation_.use_loader();
  }
  run_.fit.epoch = {.running = true, .first_step = run_.progress.global_step};
  run_.fit.engine->drop_window();
  log::trainer.debug("epoch {} begins", run_.progress.epoch);
  run_.entry.train_metrics.reset();
  run_.entry.place = {.dataloader_idx = -1};
  call_plain(run_, Hook::on_train_epoch_start, &Callback::on_train_epoch_start, &LightningModule::on_train_epoch_start);
}

bool FitLoop::epoch_must_end() const {
  return run_.fit.epoch.cut || run_.progress.global_step >= run_.plan.max_steps || must_stop();
}

namespace {

// Gives the fit the batches of one epoch, for the lifetime of this object.
class RunningBatches {
 public:
  explicit RunningBatches(Fit& fit) : fit_(fit) {
    fit_.batches = std::make_shared<BatchStream>(*fit.train.loaders[0], fit.train.num_batches[0]);
  }
  ~RunningBatches() { fit_.batches = nullptr; }
  RunningBatches(const RunningBatches&) = delete;
  RunningBatches& operator=(const RunningBatches&) = delete;

 private:
  Fit& fit_;
};

}  // namespace

void FitLoop::train_epoch(bool resumed) {
  Epoch& epoch = run_.fit.epoch;
  Progress& progress = run_.progress;
  const TimeSplit::Running timed(run_.entry.time_split);
  const RunningBatches running(run_.fit);
  BatchStream& stream = *run_.fit.batches;
  copy_ahead(run_, stream);
  stream.defer_copies();
  end_together(run_.strategy->ranks(), stream);
  {
    const ProfilerScope profile(run_.profiler.get(), "train_dataloader_start");
    stream.start(progress.epoch, epoch.next_batch);
  }
  if (resumed) {
    epoch.logs_steps = true;
    epoch.has_loss = true;  // not known: a batch before the restart may have had one
    run_.entry.place = {.dataloader_idx = -1};
    epoch.last_batch = epoch.pass_ended || !stream.has_next();  // all were processed before the restart
    if (epoch.pending != PendingWork::none) {
      finish_batch();
      between_batches();
    }
    if (epoch_must_end()) return;
  }
  Batch batch;
  while (true) {
    run_.entry.time_split.enter(StepPart::data);
    {
      const ProfilerScope profile(run_.profiler.get(), "train_dataloader_next");
      if (!stream.next(batch)) {
        const int64_t batches = stream.index() + 1;
        const bool is_short = batches == 0 || (batches < run_.fit.train.num_batches[0] && stream.is_sized());
        if (is_short && !std::exchange(warned_of_short_pass_, true)) warn_of_short_pass(run_, batches);
        end_pass();
        break;
      }
    }
    {
      const ProfilerScope profile(run_.profiler.get(), "run_training_batch");
      train_batch(stream, std::move(batch));
    }
    between_batches();
    if (epoch_must_end()) break;
  }
}

// Note [Size of an accumulation window]
// The last window of an epoch may hold fewer batches; its mean is over those it holds, so that N micro-batches are
// always one big batch. Lightning: always divides by accumulate_grad_batches.
void FitLoop::open_window(const BatchStream& stream) {
  Epoch& epoch = run_.fit.epoch;
  const int64_t batches = run_.fit.train.num_batches[0];
  const int64_t left = batches == kUnlimited ? kUnlimited : batches - epoch.batch_idx;
  epoch.window_batches = run_.progress.total_batches;
  epoch.window_loader_state = stream.state_before();
  run_.fit.engine->open_window(std::min(run_.progress.accumulate, left), epoch.batch_idx);
}

void FitLoop::close_window(int64_t steps_before) {
  run_.fit.engine->close_window();
  run_.progress.window_stepped = run_.progress.global_step > steps_before;
}

void FitLoop::train_batch(BatchStream& stream, Batch&& fetched) {
  Epoch& epoch = run_.fit.epoch;
  Progress& progress = run_.progress;
  run_.entry.time_split.begin_step();
  if (memory_keeping_ != nullptr) memory_keeping_->begin_batch();
  if (thread_tuning_ != nullptr) thread_tuning_->begin_batch();
  epoch.batch_idx = stream.index();
  StepEngine& engine = *run_.fit.engine;
  if (!engine.window_is_open()) open_window(stream);
  epoch.batch_running = true;
  note_place(run_, epoch.batch_idx);
  epoch.last_batch = stream.is_last();
  const int64_t samples = std::max<int64_t>(1, fetched.size());
  run_.entry.place = {.batch_size = samples};
  const Batch batch = change_batch(run_, transfer_batch(run_, std::move(fetched), 0));
  run_.entry.time_split.enter(StepPart::callbacks);
  call_hook(
      run_.entry, Hook::on_train_batch_start,
      [&](Callback& c) { c.on_train_batch_start(run_.trainer, *run_.entry.module, batch, epoch.batch_idx); },
      [&](LightningModule& m) { m.on_train_batch_start(batch, epoch.batch_idx); });

  const bool automatic = run_.entry.module->automatic_optimization();
  const int64_t steps_before = progress.global_step;
  const at::Tensor loss = engine.step(batch, {.epoch = progress.epoch,
                                              .batch_idx = epoch.batch_idx,
                                              .total_batches = progress.total_batches,
                                              .is_last = stream.is_last(),
                                              .length_is_known = run_.fit.train.num_batches[0] != kUnlimited});
  epoch.has_loss |= loss.defined();
  stream.send_ahead();  // while a device still computes the step
  roll_back_if_due(run_);
  const bool window_ends = engine.window_is_done();
  if (window_ends) close_window(steps_before);
  if (automatic && progress.global_step > steps_before) step_schedulers(run_, Interval::step, false);
  if (automatic && stream.is_last()) step_schedulers(run_, Interval::epoch, false);
  epoch.next_batch = epoch.batch_idx + 1;
  ++progress.total_batches;
  run_.entry.samples += samples;
  run_.has_trained = true;
  epoch.batch_running = false;
  epoch.pending = PendingWork::metrics;
  epoch.validation_follows = validation_.is_known_to_be_due();
  run_.entry.outputs.set_loss(loss);
  run_.entry.time_split.enter(StepPart::callbacks);
  call_hook(
      run_.entry, Hook::on_train_batch_end,
      [&](Callback& c) { c.on_train_batch_end(run_.trainer, *run_.entry.module, loss, batch, epoch.batch_idx); },
      [&](LightningModule& m) { m.on_train_batch_end(loss, batch, epoch.batch_idx); });
  run_.entry.outputs.clear();
  if (!run_.fit.expected_metrics.empty()) warn_of_unlogged_monitors(run_);
  const bool faster = memory_keeping_ != nullptr && memory_keeping_->end_batch();
  if (thread_tuning_ != nullptr) thread_tuning_->end_batch(window_ends);
  if (faster && !run_.has_peers()) {  // the times so far were measured for slower steps; a single rank of several
                                      // cannot start over
    thread_tuning_ = nullptr;
    thread_tuning_ = ThreadTuning::of(run_);
  }
  finish_batch();
}

void FitLoop::finish_batch() {
  Epoch& epoch = run_.fit.epoch;
  Progress& progress = run_.progress;
  run_.entry.time_split.enter(StepPart::other);
  const bool window_ends = !run_.fit.window_is_open();
  if (epoch.pending == PendingWork::metrics && window_ends) write_step_metrics();
  if (epoch.pending <= PendingWork::validation) {
    epoch.pending = PendingWork::validation;
    validate_if_due();
  }
  epoch.pending = PendingWork::schedulers;
  const bool stepped = window_ends && progress.window_stepped;
  if (run_.entry.module->automatic_optimization() && stepped) step_schedulers(run_, Interval::step, true);
  if (window_ends) ++progress.windows;
  epoch.pending = PendingWork::none;
}

// A loader that may not be read ahead and does not know its length has ended, so its last batch was not known to be
// the last: what follows the last batch of an epoch is done now.
void FitLoop::end_pass() {
  Epoch& epoch = run_.fit.epoch;
  Progress& progress = run_.progress;
  if (epoch.last_batch || epoch.next_batch == 0) return;
  epoch.last_batch = epoch.pass_ended = true;
  const bool automatic = run_.entry.module->automatic_optimization();
  const bool window_is_open = run_.fit.window_is_open();
  if (window_is_open) {
    const int64_t steps_before = progress.global_step;
    run_.fit.engine->update_cut_window(
        {.epoch = progress.epoch, .batch_idx = epoch.batch_idx, .total_batches = progress.total_batches});
    close_window(steps_before);
    if (progress.window_stepped) step_schedulers(run_, Interval::step, false);
  }
  if (automatic) step_schedulers(run_, Interval::epoch, false);
  epoch.pending = window_is_open ? PendingWork::metrics : PendingWork::validation;
  if (window_is_open) finish_batch();
  if (!window_is_open) validate_if_due();
  epoch.pending = PendingWork::none;
  between_batches();
}

void FitLoop::validate_if_due() {
  if (validated_after_ == run_.progress.total_batches || !validation_.is_due(must_stop())) return;
  validated_after_ = run_.progress.total_batches;
  validate();
}

void FitLoop::validate() {
  run_.fit.engine->finish_checks(/*receives_flags=*/true);
  capture_checkpoints(run_);  // a validation may take long: requested checkpoints are saved before it
  if (!run_.fit.window_is_open()) {
    call_module(run_.entry, Hook::on_validation_model_zero_grad,
                [](LightningModule& m) { m.on_validation_model_zero_grad(); });
  }
  const auto place = run_.entry.place;
  run_.entry.before_validation = run_state(run_);
  run_.entry.time_split.enter(StepPart::validation);
  EvaluationLoop(run_, Stage::validate, &outside_).run(kUnlimited);
  agree_on_stop(run_);
  validation_.restart_clock();
  run_.entry.time_split.enter(StepPart::other);
  run_.entry.phase = Phase::train;
  run_.entry.place = place;
}

void FitLoop::between_batches() {
  capture_checkpoints(run_);
  run_.checkpoint_writer.poll();
  if (run_.reporter != nullptr) run_.reporter->poll(run_);
  if (run_.fit.epoch.running && !is_done()) outside_.stop_if_due(/*inside_epoch=*/true);
  outside_.answer();
}

void FitLoop::write_step_metrics() {
  if (run_.loggers.empty() || !run_.is_logged_window()) return;
  sync_step_metrics(run_, run_.entry.train_metrics);
  run_.write_step_metrics();
}

void FitLoop::run_epoch_end_hooks() {
  const HookScope scope(run_.entry, Hook::on_train_epoch_end);
  // Callbacks that monitor a metric run after the module, to see what its on_train_epoch_end logged.
  for (const auto& c : run_.entry.callbacks) {
    if (!c->is_monitoring()) note_caller(run_.entry, *c).on_train_epoch_end(run_.trainer, *run_.entry.module);
  }
  note_caller(run_.entry, *run_.entry.module).on_train_epoch_end();
  sync_epoch_metrics(run_.strategy->ranks(), run_.entry.train_metrics);
  for (const auto& c : run_.entry.callbacks) {
    if (c->is_monitoring()) note_caller(run_.entry, *c).on_train_epoch_end(run_.trainer, *run_.entry.module);
  }
}

void FitLoop::end_epoch() {
  run_.fit.engine->finish_checks(/*receives_flags=*/true);
  Epoch& epoch = run_.fit.epoch;
  Progress& progress = run_.progress;
  const bool automatic = run_.entry.module->automatic_optimization();
  // In a complete epoch they were stepped after its last batch.
  const bool cut = epoch.cut && !epoch.last_batch;
  if (automatic && cut) step_schedulers(run_, Interval::epoch, false);
  run_.refresh_callback_metrics();  // the last step's values, before the epoch's replace them
  epoch.logs_steps = false;
  ++progress.processed;
  run_.fit.engine->drop_window();  // gradients of a window that the end of the epoch cuts are dropped
  run_.entry.place = {.dataloader_idx = -1};
  run_epoch_end_hooks();
  if (automatic && (cut || epoch.last_batch)) step_schedulers(run_, Interval::epoch, true);
  run_.refresh_callback_metrics();
  // Loggers count completed windows from 0, so the epoch's row stands at its last one.
  run_.write_metrics(run_.entry.train_metrics.logged(false), std::max<int64_t>(0, progress.windows - 1), true);
  if (run_.writes_logs()) {
    run_.log_stream->each([](Logger& logger) { logger.save(); });  // of a killed run, all up to its last epoch is there
  }
  run_.entry.train_metrics.reset();
  log::trainer.info("epoch {} has ended: {} batches, step {}", progress.epoch, epoch.next_batch, progress.global_step);
  ++progress.epoch;
  epoch.running = false;
  agree_on_stop(run_);
  warn_of_missing_steps(run_);
  if (!is_done()) return between_batches();
  capture_checkpoints(run_);  // nothing remains that could be stopped
}

}  // namespace levin
