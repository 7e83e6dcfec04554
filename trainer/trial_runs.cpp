#include "levin/trainer/trial_runs.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/run_access.h"
#include "levin/trainer/run/set_up_optimizers.h"
#include "levin/trainer/step/out_of_memory.h"
#include "levin/trainer/step/undo_scope.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

void check_place(const Run& run, const std::string& who) {
  if (run.entry.stage != Stage::fit || run.entry.phase != Phase::idle || run.fit.optimizers().empty()) {
    throw ConfigError(who + ": it tries training steps, in on_fit_start of a fit that has an optimizer. Call fit.");
  }
  if (run.has_peers()) {
    throw ConfigError(who + ": this run has " + count_of(run.strategy->ranks().world_size(), "rank") +
                      ", and one that runs out of memory would leave the others waiting for it. Find it with one "
                      "device (levin tune --trainer.devices=1), or use micro_batch_size: auto, on which ranks agree.");
  }
}

// A scheduler's first step may have changed it, as a warm-up does.
double configured_lr(const Optimizer::Group& group) {
  return group.scheduled ? group.initial_lr : group.lr;
}

}  // namespace

// An endless sequence of batches: one pass after another.
class TrialStream {
 public:
  explicit TrialStream(Run& run) : stream_(*run.fit.train.loaders[0], run.fit.train.num_batches[0]) {
    copy_ahead(run, stream_);
    stream_.start(epoch_);
  }
  Batch next() {
    Batch batch;
    if (stream_.next(batch)) return batch;
    stream_.start(++epoch_);
    if (!stream_.next(batch)) throw DataError("fit: the training loader gave no batch.");
    return batch;
  }
  [[nodiscard]] int64_t index() const { return stream_.index(); }

 private:
  BatchStream stream_;
  int64_t epoch_ = 0;
};

// Trials have their own entry point and fit, in which no callback is called; the run's own are set aside.
struct TrialRuns::SavedRun {
  explicit SavedRun(Run& given)
      : run(given),
        entry(std::exchange(run.entry, own_entry())),
        fit(std::exchange(run.fit, Fit(run.plan))),
        progress(run.progress),
        logged_metrics(run.logged_metrics),
        loggers(std::exchange(run.loggers, {})),
        profiler(std::exchange(run.profiler, nullptr)),
        precision(run.precision->state_dict()),
        undo(*entry.module, {.saves_weights = true, .sets_gradients_aside = true}) {
    begin_fit();
  }

  [[nodiscard]] EntryPoint own_entry() const {
    EntryPoint own;
    own.module = run.entry.module;
    own.data = run.entry.data;
    own.stage = run.entry.stage;
    own.running = true;
    own.phase = Phase::train;
    own.replicas = run.entry.replicas;
    own.sequential_calls = run.entry.sequential_calls;
    own.recomputation = run.entry.recomputation;
    return own;
  }

  // Begins the fit of a trial; the loader stays for the next trial.
  void begin_fit() {
    LoaderSet train = std::move(run.fit.train);
    run.fit = Fit(run.plan);
    run.fit.train = std::move(train);
    run.fit.tuning = fit.tuning;
    run.fit.planned_accumulation = fit.planned_accumulation;
    run.fit.effective_batch_size = 0;
    run.fit.nonfinite_loss = NonFiniteLoss::ignore;
    run.fit.lr_scale = LrScale::none;
  }

  // The state of the module, the random numbers and the loader.
  void restore_module() {
    undo.restore();
    run.precision->load_state_dict(precision);
    restore_loader();
  }

  void restore_loader() const {
    if (!loader_state.empty()) loader->load_state_dict(loader_state);
  }

  void restore() {
    const LoaderSet tried = std::move(run.fit.train);
    run.entry = std::move(entry);
    run.fit = std::move(fit);
    run.progress = progress;
    run.logged_metrics = std::move(logged_metrics);
    run.loggers = std::move(loggers);
    run.profiler = std::move(profiler);
    run.precision->load_state_dict(precision);
    undo.end();
    restore_loader();
    if (original_batch_size > 0 && !tried.loaders.empty()) {
      tried.loaders[0]->set_batch_size(original_batch_size);  // it may be the user's own
    }
  }

  Run& run;
  EntryPoint entry;
  Fit fit;
  Progress progress;
  LoggedMetrics logged_metrics;
  std::vector<std::shared_ptr<Logger>> loggers;
  std::shared_ptr<Profiler> profiler;
  State precision, loader_state;
  std::shared_ptr<Loader> loader = nullptr;  // of the trials; it may be the user's own
  UndoScope undo;
  int64_t original_batch_size = 0;
};

TrialRuns::TrialRuns(Trainer& trainer, std::string who) : who_(std::move(who)) {
  Run& run = RunAccess::of(trainer);
  check_place(run, who_);
  kept_ = std::make_shared<SavedRun>(run);
  try {
    load_train_loader(run);
    if (run.fit.train.loaders.empty()) {
      throw ConfigError(who_ +
                        ": limit_train_batches is 0, so there are no batches to try. Raise it, or drop the "
                        "callback.");
    }
    kept_->loader = run.fit.train.loaders[0];
    kept_->loader_state = kept_->loader->state_dict();
    kept_->original_batch_size = kept_->loader->batch_size().value_or(0);
  } catch (...) {
    try {
      kept_->restore();
    } catch (...) {  // the first error is more useful
    }
    throw;
  }
}

// A destructor must not throw: the fit does, before it trains.
TrialRuns::~TrialRuns() {
  try {
    kept_->restore();
  } catch (...) {
    kept_->run.fit.restore_failed = std::current_exception();
  }
}

// The initial state of the fit, with new optimizers.
void TrialRuns::begin_trial() {
  Run& run = kept_->run;
  kept_->restore_module();
  kept_->begin_fit();
  run.progress = kept_->progress;
  run.set_accumulation(run.fit.planned_accumulation);
  set_up_optimizers(run);
  for (const auto& own : run.fit.optimizers()) {
    for (const auto& original : kept_->fit.optimizers()) {
      if (own.shared() != original.shared()) continue;
      throw ConfigError(who_ +
                        ": configure_optimizers returned the same optimizer a second time, so its steps could not be "
                        "tried. Make a new one in each call.");
    }
  }
  run.entry.module->train();
}

// The mean loss of a window, and the update; nan if no batch had a loss.
double TrialRuns::run_step(TrialStream& stream, int64_t accumulate) {
  Run& run = kept_->run;
  StepEngine& engine = *run.fit.engine;
  double sum = std::numeric_limits<double>::quiet_NaN();
  engine.open_window(accumulate, /*first_batch=*/0);
  for (int64_t k = 0; k < accumulate; ++k) {
    Batch fetched = stream.next();
    run.fit.epoch.batch_idx = stream.index();
    run.entry.place = {.batch_size = std::max<int64_t>(1, fetched.size())};
    const Batch batch = transfer_batch(run, std::move(fetched), 0);
    const at::Tensor loss = engine.step(batch, {.epoch = run.progress.epoch,
                                                .batch_idx = stream.index(),
                                                .total_batches = run.progress.total_batches,
                                                .is_trial = true});
    if (loss.defined()) sum = (k == 0 ? 0 : sum) + loss.item().toDouble();
    ++run.progress.total_batches;
  }
  engine.close_window();
  return sum;
}

int64_t TrialRuns::batch_size() const {
  const std::string fix = " Override Loader::batch_size and Loader::set_batch_size, or drop the callback.";
  if (kept_->original_batch_size == 0) throw ConfigError(who_ + ": the training loader has no batch size." + fix);
  if (!kept_->run.fit.train.loaders[0]->set_batch_size(kept_->original_batch_size)) {
    throw ConfigError(who_ + ": the training loader cannot change its batch size." + fix);
  }
  return kept_->original_batch_size;
}

TrialRuns::Outcome TrialRuns::try_batch_size(int64_t samples, int64_t steps) {
  Run& run = kept_->run;
  Outcome outcome = Outcome::fits;
  run.fit.train.loaders[0]->set_batch_size(samples);
  run.fit.train.num_batches[0] = run.fit.train.loaders[0]->num_batches().value_or(kUnlimited);
  if (run.fit.train.num_batches[0] == 0) return Outcome::larger_than_data;
  try {
    begin_trial();
    TrialStream stream(run);
    for (int64_t k = 0; k < steps && outcome == Outcome::fits; ++k) {
      (void)run_step(stream, 1);
      // An incomplete last batch is not representative, unless it is the only one.
      if (k == 0 && run.entry.place.batch_size < samples) outcome = Outcome::larger_than_data;
    }
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    outcome = Outcome::out_of_memory;
  }
  kept_->restore_module();  // frees gradients, and the remains of a failed step
  run.entry.engine = run.fit.engine = nullptr;
  run.fit.schedulers.clear();
  free_cached_memory(run.strategy->placement().device());
  return outcome;
}

double TrialRuns::learning_rate() const {
  return configured_lr(kept_->fit.optimizers()[0].shared()->param_groups()[0]);
}

void TrialRuns::try_learning_rates(int64_t steps, const std::function<double(int64_t)>& lrs,
                                   const std::function<bool(int64_t, double)>& seen) {
  Run& run = kept_->run;
  begin_trial();
  auto& groups = run.fit.optimizers()[0].optimizer().param_groups();
  const double first = learning_rate();
  std::vector<double> ratios;
  for (const auto& group : kept_->fit.optimizers()[0].shared()->param_groups()) {
    ratios.push_back(configured_lr(group) / first);
  }
  TrialStream stream(run);
  for (int64_t k = 0; k < steps; ++k) {
    for (size_t g = 0; g < groups.size(); ++g) groups[g].lr = lrs(k) * ratios[g];
    if (!seen(k, run_step(stream, kept_->fit.planned_accumulation))) return;
  }
}

void TrialRuns::keep_batch_size(Trainer& trainer, int64_t found, int64_t configured) {
  Run& run = RunAccess::of(trainer);
  run.fit.tuning.batch_size = found;
  run.fit.tuning.configured_batch_size = configured;
  if (found == configured) return;
  run.fit.train = LoaderSet();
  set_up_optimizers(run);
}

void TrialRuns::keep_learning_rate(Trainer& trainer, double factor) {
  Run& run = RunAccess::of(trainer);
  run.fit.tuning.lr_factor = factor;
  if (factor != 1) set_up_optimizers(run);
}

}  // namespace levin
