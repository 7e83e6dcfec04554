#include "levin/trainer/trial_runs.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include "levin/core/error.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/out_of_memory.h"
#include "levin/trainer/step/automatic_step.h"
#include "levin/trainer/step/micro_batching.h"
#include "levin/trainer/step/set_up_optimizers.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// A tensor of the run, and what was in it.
struct TensorCopy {
  at::Tensor tensor;
  at::Tensor copy;
};

struct KeptGradient {
  at::Tensor parameter;
  at::Tensor gradient;
};

void check_place(const Run& run, const std::string& who) {
  if (run.stage != Stage::fit || run.phase != Phase::idle || run.optimizers.empty()) {
    throw ConfigError(who + ": it tries training steps, in on_fit_start of a fit that has an optimizer. Call fit.");
  }
  if (run.has_peers()) {
    throw ConfigError(who + ": this run has " + std::to_string(run.strategy->world_size()) +
                      " ranks, and one that runs out of memory would leave the others waiting for it. Find it with one "
                      "device (levin tune --trainer.devices=1), or use micro_batch_size: auto, on which ranks agree.");
  }
}

}  // namespace

// Batches without end: one pass after another.
class TrialStream {
 public:
  explicit TrialStream(Run& run) : stream_(*run.train.loaders[0], run.train.num_batches[0]) {
    copy_ahead(run, stream_);
    stream_.start(epoch_);
  }
  Batch next() {
    Batch batch;
    if (stream_.next(batch)) return batch;
    stream_.start(++epoch_);
    (void)stream_.next(batch);
    return batch;
  }
  [[nodiscard]] int64_t index() const { return stream_.index(); }

 private:
  BatchStream stream_;
  int64_t epoch_ = 0;
};

// What a trial may change. Optimizers and schedulers are put aside as they are: trials have their own.
struct TrialRuns::Kept {
  explicit Kept(Run& given)
      : run(given),
        plan(run.plan),
        random(random_state()),
        precision(run.precision->state()),
        progress(run.progress),
        optimizers(run.optimizers),
        schedulers(run.schedulers),
        train(std::exchange(run.train, {})),
        callbacks(std::exchange(run.callbacks, {})),
        loggers(std::exchange(run.loggers, {})),
        profiler(std::exchange(run.profiler, nullptr)),
        micro_batching(run.micro_batching),
        time_split(run.time_split),
        train_metrics(std::exchange(run.train_metrics, {})),
        callback_metrics(run.callback_metrics),
        logged_metrics(run.logged_metrics),
        bar_metrics(run.bar_metrics),
        place(run.place),
        loss_weights(run.loss_weights),
        tuning(run.tuning),
        train_loaded_in_epoch(run.train_loaded_in_epoch),
        stop(run.stop),
        epoch_cut(run.epoch_cut),
        stop_reason(run.stop_reason) {
    const at::NoGradGuard no_grad;
    for (const auto& parameter : run.module->parameters()) {
      tensors.push_back({parameter, parameter.detach().clone()});
      gradients.push_back({parameter, parameter.grad()});
    }
    for (const auto& buffer : run.module->buffers()) tensors.push_back({buffer, buffer.clone()});
    training.emplace_back(run.module, run.module->is_training());
    for (const auto& module : run.module->modules(/*include_self=*/false))
      training.emplace_back(module.get(), module->is_training());
  }

  // The state of the module and the random numbers.
  void restore_module() const {
    const at::NoGradGuard no_grad;
    for (const auto& [tensor, copy] : tensors) at::Tensor(tensor).copy_(copy);
    for (const auto& [parameter, gradient] : gradients) parameter.mutable_grad() = at::Tensor();
    restore_random_state(random);
    run.precision->load_state(precision);
  }

  void restore() {
    if (original_batch_size > 0 && !run.train.loaders.empty()) {
      run.train.loaders[0]->set_batch_size(original_batch_size);  // it may be the user's own
    }
    run.optimizers = std::move(optimizers);
    run.schedulers = std::move(schedulers);
    restore_module();
    for (const auto& [parameter, gradient] : gradients) parameter.mutable_grad() = gradient;
    for (const auto& [module, was_training] : training) module->train(was_training);  // parents before children
    run.plan = plan;
    run.progress = progress;
    run.train = std::move(train);
    run.callbacks = std::move(callbacks);
    run.loggers = std::move(loggers);
    run.profiler = std::move(profiler);
    run.micro_batching = std::move(micro_batching);
    run.time_split = time_split;
    run.train_metrics = std::move(train_metrics);
    run.callback_metrics = std::move(callback_metrics);
    run.logged_metrics = std::move(logged_metrics);
    run.bar_metrics = std::move(bar_metrics);
    run.place = place;
    run.loss_weights = loss_weights;
    run.tuning = tuning;
    run.train_loaded_in_epoch = train_loaded_in_epoch;
    run.stop = stop;
    run.epoch_cut = epoch_cut;
    run.stop_reason = stop_reason;
    run.phase = Phase::idle;
    run.skip_batch = false;
    run.batch_overflowed.reset();
    run.failed_hook.reset();
  }

  Run& run;
  RunPlan plan;
  State random, precision;
  Progress progress;
  std::vector<LightningOptimizer> optimizers;
  std::vector<LRSchedulerConfig> schedulers;
  LoaderSet train;
  std::vector<std::shared_ptr<Callback>> callbacks;
  std::vector<std::shared_ptr<Logger>> loggers;
  std::shared_ptr<Profiler> profiler;
  std::shared_ptr<MicroBatching> micro_batching;
  TimeSplit time_split;
  MetricStore train_metrics;
  Metrics callback_metrics, logged_metrics, bar_metrics;
  MetricStore::Place place;
  LossWeights loss_weights;
  Tuning tuning;
  int64_t train_loaded_in_epoch;
  bool stop, epoch_cut;
  std::string stop_reason;
  std::vector<TensorCopy> tensors;
  std::vector<KeptGradient> gradients;
  std::vector<std::pair<torch::nn::Module*, bool>> training;
  int64_t original_batch_size = 0;
};

TrialRuns::TrialRuns(Trainer& trainer, std::string who) : who_(std::move(who)) {
  Run& run = *trainer.run_;
  check_place(run, who_);
  kept_ = std::make_unique<Kept>(run);
  try {
    run.phase = Phase::train;
    run.plan.nonfinite_loss = NonFiniteLoss::ignore;
    run.plan.lr_scale = LrScale::none;
    run.plan.effective_batch_size = 0;
    load_train_loader(run);
    kept_->original_batch_size = run.train.loaders[0]->batch_size().value_or(0);
  } catch (...) {
    try {
      kept_->restore();
    } catch (...) {  // the first error says more
    }
    throw;
  }
}

// A destructor cannot throw: the fit does, before it trains with what is left.
TrialRuns::~TrialRuns() {
  try {
    kept_->restore();
  } catch (...) {
    kept_->run.restore_failed = std::current_exception();
  }
}

// Where the fit begins, with optimizers that have not made a step.
void TrialRuns::begin_trial() {
  Run& run = kept_->run;
  kept_->restore_module();
  run.progress = kept_->progress;
  run.progress.accumulate = kept_->plan.accumulate_grad_batches;
  run.loss_weights = LossWeights();
  set_up_optimizers(run);
  for (const auto& own : run.optimizers) {
    for (const auto& original : kept_->optimizers) {
      if (own.shared() != original.shared()) continue;
      throw ConfigError(who_ +
                        ": configure_optimizers returned the same optimizer a second time, so its steps could not be "
                        "tried. Make a new one in each call.");
    }
  }
  run.module->train();
}

// The mean loss of a window, and the update; nan if no batch had a loss.
double TrialRuns::run_step(TrialStream& stream, int64_t accumulate) {
  Run& run = kept_->run;
  Progress& progress = run.progress;
  double sum = std::numeric_limits<double>::quiet_NaN();
  progress.window = {.size = accumulate};
  for (int64_t k = 0; k < accumulate; ++k) {
    Batch fetched = stream.next();
    progress.batch_idx = stream.index();
    progress.window.seen = k + 1;
    run.place = {Hook::none, std::max<int64_t>(1, fetched.size()), 0, 1};
    const Batch batch = transfer_batch(run, std::move(fetched), 0);
    const WindowPart window{k == 0, k + 1 == accumulate, true};
    const at::Tensor loss = run.module->automatic_optimization()
                                ? automatic_step(run, batch, progress.batch_idx, window)
                                : manual_step(run, batch, progress.batch_idx);
    if (loss.defined()) sum = (k == 0 ? 0 : sum) + loss.item().toDouble();
    ++progress.total_batches;
  }
  progress.window = Window();
  return sum;
}

int64_t TrialRuns::batch_size() const {
  const std::string fix = " Override Loader::batch_size and Loader::set_batch_size, or drop the callback.";
  if (kept_->original_batch_size == 0) throw ConfigError(who_ + ": the training loader has no batch size." + fix);
  if (!kept_->run.train.loaders[0]->set_batch_size(kept_->original_batch_size)) {
    throw ConfigError(who_ + ": the training loader cannot change its batch size." + fix);
  }
  return kept_->original_batch_size;
}

TrialRuns::Outcome TrialRuns::try_batch_size(int64_t samples, int64_t steps) {
  Run& run = kept_->run;
  Outcome outcome = Outcome::fits;
  run.train.loaders[0]->set_batch_size(samples);
  run.train.num_batches[0] = run.train.loaders[0]->num_batches().value_or(kUnlimited);
  if (run.train.num_batches[0] == 0) return Outcome::larger_than_data;
  try {
    begin_trial();
    TrialStream stream(run);
    for (int64_t k = 0; k < steps && outcome == Outcome::fits; ++k) {
      (void)run_step(stream, 1);
      // A last batch that is not full tells nothing, unless it is the only one.
      if (k == 0 && run.place.batch_size < samples) outcome = Outcome::larger_than_data;
    }
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    outcome = Outcome::out_of_memory;
  }
  kept_->restore_module();  // gradients, and what a step that failed has left, make place
  run.optimizers.clear();
  run.schedulers.clear();
  free_cached_memory(run.strategy->device());
  return outcome;
}

double TrialRuns::learning_rate() const {
  return kept_->optimizers[0].shared()->groups()[0].lr;
}

void TrialRuns::try_learning_rates(int64_t steps, const std::function<double(int64_t)>& lrs,
                                   const std::function<bool(int64_t, double)>& seen) {
  Run& run = kept_->run;
  begin_trial();
  auto& groups = run.optimizers[0].optimizer().groups();
  const double first = learning_rate();
  std::vector<double> ratios;
  for (const auto& group : kept_->optimizers[0].shared()->groups()) ratios.push_back(group.lr / first);
  TrialStream stream(run);
  for (int64_t k = 0; k < steps; ++k) {
    for (size_t g = 0; g < groups.size(); ++g) groups[g].lr = lrs(k) * ratios[g];
    if (!seen(k, run_step(stream, kept_->plan.accumulate_grad_batches))) return;
  }
}

void TrialRuns::keep_batch_size(Trainer& trainer, int64_t found, int64_t configured) {
  Run& run = *trainer.run_;
  run.tuning.batch_size = found;
  run.tuning.configured_batch_size = configured;
  if (found == configured) return;
  run.train = LoaderSet();
  set_up_optimizers(run);
}

void TrialRuns::keep_learning_rate(Trainer& trainer, double factor) {
  Run& run = *trainer.run_;
  run.tuning.lr_factor = factor;
  if (factor != 1) set_up_optimizers(run);
}

}  // namespace levin
