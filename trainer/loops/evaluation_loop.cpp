#include "levin/trainer/loops/evaluation_loop.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>

#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/core/process/stop_signal.h"
#include "levin/trainer/loops/evaluation_scopes.h"
#include "levin/trainer/predict_outputs.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/averaging_optimizers.h"
#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run_reporter.h"
#include "levin/trainer/takes_skipped_samples.h"

namespace levin {

namespace {

// The hooks of one stage, so that the loop is written once.
struct StageHooks {
  using Plain = void (Callback::*)(Trainer&, LightningModule&);
  using ModulePlain = void (LightningModule::*)();
  using BatchHook = void (Callback::*)(Trainer&, LightningModule&, const Batch&, int64_t, int64_t);
  using ModuleBatchHook = void (LightningModule::*)(const Batch&, int64_t, int64_t);

  Phase phase;
  Hook start, end, epoch_start, epoch_end, batch_start, batch_end, step;
  Plain on_start, on_end, on_epoch_start, on_epoch_end;
  ModulePlain module_start, module_end, module_epoch_start, module_epoch_end;
  BatchHook on_batch_start;
  ModuleBatchHook module_batch_start;
  const char* action;
};

const StageHooks& hooks_of(Stage stage) {
  using C = Callback;
  using M = LightningModule;
  static const StageHooks validate{Phase::validate,
                                   Hook::on_validation_start,
                                   Hook::on_validation_end,
                                   Hook::on_validation_epoch_start,
                                   Hook::on_validation_epoch_end,
                                   Hook::on_validation_batch_start,
                                   Hook::on_validation_batch_end,
                                   Hook::validation_step,
                                   &C::on_validation_start,
                                   &C::on_validation_end,
                                   &C::on_validation_epoch_start,
                                   &C::on_validation_epoch_end,
                                   &M::on_validation_start,
                                   &M::on_validation_end,
                                   &M::on_validation_epoch_start,
                                   &M::on_validation_epoch_end,
                                   &C::on_validation_batch_start,
                                   &M::on_validation_batch_start,
                                   "validation_step"};
  static const StageHooks test{Phase::test,
                               Hook::on_test_start,
                               Hook::on_test_end,
                               Hook::on_test_epoch_start,
                               Hook::on_test_epoch_end,
                               Hook::on_test_batch_start,
                               Hook::on_test_batch_end,
                               Hook::test_step,
                               &C::on_test_start,
                               &C::on_test_end,
                               &C::on_test_epoch_start,
                               &C::on_test_epoch_end,
                               &M::on_test_start,
                               &M::on_test_end,
                               &M::on_test_epoch_start,
                               &M::on_test_epoch_end,
                               &C::on_test_batch_start,
                               &M::on_test_batch_start,
                               "test_step"};
  static const StageHooks predict{Phase::predict,
                                  Hook::on_predict_start,
                                  Hook::on_predict_end,
                                  Hook::on_predict_epoch_start,
                                  Hook::on_predict_epoch_end,
                                  Hook::on_predict_batch_start,
                                  Hook::on_predict_batch_end,
                                  Hook::predict_step,
                                  &C::on_predict_start,
                                  &C::on_predict_end,
                                  &C::on_predict_epoch_start,
                                  &C::on_predict_epoch_end,
                                  &M::on_predict_start,
                                  &M::on_predict_end,
                                  &M::on_predict_epoch_start,
                                  &M::on_predict_epoch_end,
                                  &C::on_predict_batch_start,
                                  &M::on_predict_batch_start,
                                  "predict_step"};
  return stage == Stage::test ? test : stage == Stage::predict ? predict : validate;
}

// No graphs while evaluating; in inference mode tensors have no version counters either.
// Inside fit it is always no_grad, because inference tensors could not be used in training afterwards.
class GradientsOff {
 public:
  explicit GradientsOff(bool inference) {
    if (inference) inference_.emplace(true);
    if (!inference) no_grad_.emplace(false);
  }

 private:
  std::optional<c10::InferenceMode> inference_ = std::nullopt;
  std::optional<at::AutoGradMode> no_grad_ = std::nullopt;
};

constexpr double kSecondsBetweenMeetings = 1;
constexpr int64_t kMaxBatchesBetweenMeetings = 128;  // the next ones may be much slower

}  // namespace

// Note [Stopping an evaluation of several ranks]
// Ranks exchange nothing while they evaluate, but a signal may reach only one of them, and all must stop before the
// same batch, because a step may wait for the other ranks. So they meet after the same number of batches, about once a
// second. They may have different numbers of batches: a rank that has no more waits in the meetings of the others.
class EvaluationLoop::Meetings {
 public:
  explicit Meetings(EvaluationLoop& loop) : loop_(loop) {}

  /// Called after each batch.
  void count_batch() {
    if (++batches_ == next_) (void)meet(/*has_more=*/true);
  }

  /// Called after the last batch.
  void end() {
    while (meet(/*has_more=*/false)) {
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Returns whether any rank has more batches.
  bool meet(bool has_more) {
    OutsideRequests::Requests requests = loop_.look_outside();
    const std::chrono::duration<double> since = Clock::now() - begin_;
    const at::Tensor own = at::tensor({has_more ? 1.0 : 0.0, since.count(), static_cast<double>(requests.signal_number),
                                       requests.stop_file ? 1.0 : 0.0, requests.save_file ? 1.0 : 0.0});
    const at::Tensor all = loop_.run_.strategy->ranks().reduce(own, ReduceOp::max);
    const auto* most = all.const_data_ptr<double>();
    loop_.act({static_cast<int>(most[2]), most[3] > 0, most[4] > 0});
    const double most_batches = static_cast<double>(gap_) * kSecondsBetweenMeetings / std::max(most[1], 1e-6);
    gap_ = std::clamp<int64_t>(static_cast<int64_t>(most_batches), 1, std::min(4 * gap_, kMaxBatchesBetweenMeetings));
    next_ = batches_ + gap_;
    begin_ = Clock::now();
    return most[0] > 0;
  }

  EvaluationLoop& loop_;
  int64_t batches_ = 0;
  int64_t gap_ = 1;   // batches from the last meeting to the next
  int64_t next_ = 1;  // the number of batches after which the ranks meet
  Clock::time_point begin_ = Clock::now();
};

std::vector<Metrics> EvaluationLoop::run(int64_t limit) {
  const auto started = std::chrono::steady_clock::now();
  log::trainer.debug("{} begins", enum_name(stage_));
  const StageHooks& hooks = hooks_of(stage_);
  const bool inside_fit = run_.entry.stage == Stage::fit;
  std::optional<RandomState> training_numbers;  // restored at the end: how often a fit validates must not change them
  if (inside_fit) training_numbers.emplace();
  const int64_t every = run_.plan.reload_dataloaders_every_n_epochs;
  const bool makes_loaders_anew = inside_fit && every > 0 && !run_.entry.sanity_checking;
  if (makes_loaders_anew && run_.progress.epoch - run_.fit.eval_loaded_in_epoch >= every) {
    load_eval_loaders(run_, stage_);
  }
  const GradientsOff gradients_off(run_.plan.inference_mode && !inside_fit);
  EvalMode eval_mode(run_.entry, *run_.entry.module, hooks.phase);
  WholeWeights whole_weights(*run_.strategy);
  std::optional<AverageScope> averages(std::in_place, run_, inside_fit);
  std::optional<RankZeroBuffers> buffers(std::in_place, run_);
  run_.refresh_callback_metrics();
  run_.entry.phase = hooks.phase;
  run_.entry.eval_metrics.reset();
  run_.entry.eval_on_step = true;
  run_.entry.eval_batch_idx = -1;
  run_.entry.place = {.dataloader_idx = -1};
  call_plain(run_, hooks.start, hooks.on_start, hooks.module_start);
  call_plain(run_, hooks.epoch_start, hooks.on_epoch_start, hooks.module_epoch_start);
  buffers->renew();
  run_batches(limit);
  run_.entry.eval_on_step = false;
  run_.entry.place = {.dataloader_idx = -1};
  call_plain(run_, hooks.epoch_end, hooks.on_epoch_end, hooks.module_epoch_end);
  std::vector<Metrics> results = finish_metrics();
  if (inside_fit && !run_.entry.sanity_checking) {
    training_numbers.emplace();  // what a checkpoint of on_validation_end holds
    run_.entry.before_validation.reset();
    run_.fit.epoch.pending = PendingWork::schedulers;
    ++run_.entry.validations;
  }
  call_plain(run_, hooks.end, hooks.on_end, hooks.module_end);
  run_.entry.eval_metrics.reset();
  eval_mode.end();
  buffers.reset();
  averages.reset();
  whole_weights.end();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
  log::trainer.info("{}{} has ended after {:.2f} s", run_.entry.sanity_checking ? "the sanity check's " : "",
                    enum_name(stage_), took.count());
  return results;
}

void EvaluationLoop::run_batches(int64_t limit) {
  const auto count = static_cast<int64_t>(run_.entry.eval.loaders.size());
  predictions_.assign(static_cast<size_t>(count), {});
  if (run_.taken_outputs != nullptr) run_.taken_outputs->assign(static_cast<size_t>(count), {});
  idle_loaders_.clear();
  run_.eval_batches_seen.resize(static_cast<size_t>(count));
  Meetings meetings(*this);
  for (int64_t k = 0; k < count; ++k) {
    BatchStream stream(*run_.entry.eval.loaders[static_cast<size_t>(k)],
                       std::min(limit, run_.entry.eval.num_batches[static_cast<size_t>(k)]));
    copy_ahead(run_, stream);
    stream.start(run_.progress.epoch);
    run_.entry.engine->begin_pass(static_cast<size_t>(k));
    Batch batch;
    while (stream.next(batch)) {
      run_.entry.place = {Hook::none, std::max<int64_t>(1, batch.size()), k, count};
      const bool lacks_samples = batch.samples() != nullptr && !batch.samples()->skipped.empty();
      if (lacks_samples) report_skipped(*batch.samples(), k);
      if (!lacks_samples || !batch.empty()) run_batch(std::move(batch), stream.index(), k);
      run_.has_peers() ? meetings.count_batch() : act(look_outside());
    }
    if (stream.index() >= 0) continue;
    idle_loaders_.push_back(k);
    if (!run_.has_peers() && limit > 0 && run_.entry.validations == 0) {
      Console::instance().warn(enum_name(stage_) + ": loader " + std::to_string(k) +
                               " has no batches, so nothing is computed with it. Check its data set's size, batch_size "
                               "and drop_last.");
    }
  }
  if (run_.has_peers()) meetings.end();
}

OutsideRequests::Requests EvaluationLoop::look_outside() {
  return outside_ != nullptr ? outside_->look() : OutsideRequests::Requests{stop_signal()};
}

// Inside fit a stop saves first; a test or a prediction has nothing to save.
void EvaluationLoop::act(const OutsideRequests::Requests& requests) {
  if (outside_ != nullptr) return outside_->act(requests);
  if (requests.signal_number != 0) throw Interrupted(requests.signal_number);
}

void EvaluationLoop::run_batch(Batch&& fetched, int64_t batch_idx, int64_t loader_idx) {
  const StageHooks& hooks = hooks_of(stage_);
  run_.entry.eval_batch_idx = batch_idx;
  note_place(run_, batch_idx);
  if (run_.reporter != nullptr) run_.reporter->poll(run_);
  const Batch batch = transfer_batch(run_, std::move(fetched), loader_idx);
  call_hook(
      run_.entry, hooks.batch_start,
      [&](Callback& c) { (c.*hooks.on_batch_start)(run_.trainer, *run_.entry.module, batch, batch_idx, loader_idx); },
      [&](LightningModule& m) { (m.*hooks.module_batch_start)(batch, batch_idx, loader_idx); });
  at::Tensor prediction;
  {
    const ProfilerScope profile(run_.profiler.get(), hooks.action);
    const HookScope scope(run_.entry, hooks.step);
    prediction = run_.entry.engine->evaluate(static_cast<size_t>(loader_idx), batch, batch_idx,
                                             [&](LightningModule& m, const Batch& of) {
                                               if (stage_ == Stage::predict) return m.predict_step(of, batch_idx);
                                               if (stage_ == Stage::test) m.test_step(of, batch_idx);
                                               if (stage_ == Stage::validate) m.validation_step(of, batch_idx);
                                               return at::Tensor();
                                             });
  }
  call_hook(
      run_.entry, hooks.batch_end,
      [&](Callback& c) {
        if (stage_ == Stage::predict)
          c.on_predict_batch_end(run_.trainer, *run_.entry.module, prediction, batch, batch_idx, loader_idx);
        if (stage_ == Stage::test) c.on_test_batch_end(run_.trainer, *run_.entry.module, batch, batch_idx, loader_idx);
        if (stage_ == Stage::validate)
          c.on_validation_batch_end(run_.trainer, *run_.entry.module, batch, batch_idx, loader_idx);
      },
      [&](LightningModule& m) {
        if (stage_ == Stage::predict) m.on_predict_batch_end(prediction, batch, batch_idx, loader_idx);
        if (stage_ == Stage::test) m.on_test_batch_end(batch, batch_idx, loader_idx);
        if (stage_ == Stage::validate) m.on_validation_batch_end(batch, batch_idx, loader_idx);
      });
  if (stage_ == Stage::predict) keep_prediction(prediction, static_cast<size_t>(loader_idx));
  run_.entry.outputs.clear();
  if (stage_ != Stage::predict) write_step_metrics(loader_idx);
}

void EvaluationLoop::report_skipped(const BatchSamples& samples, int64_t loader_idx) {
  for (const auto& callback : run_.entry.callbacks) {
    auto* taker = dynamic_cast<TakesSkippedSamples*>(callback.get());
    if (taker == nullptr) continue;
    note_caller(run_.entry, *callback);
    taker->on_samples_skipped(samples, loader_idx);
  }
}

void EvaluationLoop::keep_prediction(const at::Tensor& prediction, size_t loader) {
  const auto here = [](const at::Tensor& value) { return value.defined() ? value.cpu() : value; };
  if (run_.taken_outputs != nullptr) {
    PredictedBatch batch{here(prediction)};
    for (const auto& [name, value] : run_.entry.outputs) batch.outputs.add(name, here(value));
    (*run_.taken_outputs)[loader].push_back(std::move(batch));
  } else if (prediction.defined() && keeps_predictions_) {
    predictions_[loader].push_back(prediction.cpu());
  }
}

// Lightning: eval step metrics stand at a count of evaluation batches that grows over the whole run, without an epoch.
void EvaluationLoop::write_step_metrics(int64_t loader_idx) {
  int64_t& seen = run_.eval_batches_seen[static_cast<size_t>(loader_idx)];
  const int64_t step = seen++;
  if (run_.entry.sanity_checking || run_.loggers.empty()) return;
  const Metrics metrics = run_.entry.eval_metrics.logged(true, loader_idx);
  if (!metrics.empty()) run_.write_metrics(metrics, step);
}

// Remembers metrics with values of batches but not of the evaluation: they cannot be monitored.
void EvaluationLoop::note_batch_only() {
  for (const auto& [name, value] : run_.entry.eval_metrics.logged(true)) {
    if (!run_.entry.callback_metrics.contains(name)) run_.entry.batch_only.insert(name);
  }
}

std::vector<Metrics> EvaluationLoop::finish_metrics() {
  sync_epoch_metrics(run_.strategy->ranks(), run_.entry.eval_metrics, idle_loaders_);
  const Metrics of_the_epoch = run_.entry.eval_metrics.logged(false, -1);
  std::vector<Metrics> results;
  for (size_t k = 0; k < run_.entry.eval.loaders.size(); ++k) {
    results.push_back(run_.entry.eval_metrics.logged(false, static_cast<int64_t>(k)));
    results.back().insert(of_the_epoch.begin(), of_the_epoch.end());
  }
  run_.refresh_callback_metrics();
  note_batch_only();
  if (!run_.entry.sanity_checking) run_.write_metrics(run_.entry.eval_metrics.logged(false));
  return results;
}

}  // namespace levin
