#include "levin/trainer/trainer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/program_start.h"
#include "levin/data/data_module.h"
#include "levin/precision/default_dtype.h"
#include "levin/trainer/loops/entry.h"
#include "levin/trainer/loops/make_run.h"
#include "levin/trainer/loops/outside_requests.h"
#include "levin/trainer/plan/resolve_period.h"
#include "levin/trainer/run/fit_length.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/run/run_access.h"
#include "levin/trainer/run/run_folders.h"
#include "levin/trainer/step/step_share.h"
#include "levin/trainer/step/step_values.h"

namespace levin {

namespace {

TrainerOptions with_builtins(TrainerOptions options) {
  add_builtins();
  return options;
}

TrainerOptions with_streams(TrainerOptions options) {
  open_standard_streams();  // before the number of an fd is reused for a file
  return with_builtins(std::move(options));
}

}  // namespace

Trainer::Trainer(TrainerOptions options) : run_(make_run(*this, with_streams(std::move(options)))) {}

Trainer::Trainer(TrainerOptions options, Guest) : run_(make_run(*this, with_builtins(std::move(options)))) {
  run_->trainer_callbacks.resize(run_->options.callbacks.size());  // without the defaults
}

std::unique_ptr<Trainer> RunAccess::make_guest(TrainerOptions options) {
  return std::unique_ptr<Trainer>(new Trainer(std::move(options), Trainer::Guest()));
}

Trainer::~Trainer() {
  remove_unused_folders(*run_);
  if (run_->entry.module != nullptr) RunAccess::detach(*run_->entry.module, *this);
}

std::shared_ptr<void> Trainer::init_module() const {
  const auto dtype = run_->precision->dtype();
  return dtype ? std::make_shared<DefaultDtype>(*dtype) : nullptr;
}

void Trainer::start_from(WeightsOptions weights) {
  run_->weights = checked(std::move(weights), "WeightsOptions");
}

void RunAccess::keep_config(Trainer& trainer, KeptConfig config) {
  of(trainer).kept_config = std::move(config);
}

void Trainer::fit(LightningModule& module, DataModule& data, const std::string& ckpt_path) {
  run_fit(*run_, module, &data, ckpt_path);
}

void Trainer::fit(LightningModule& module, const std::string& ckpt_path) {
  run_fit(*run_, module, nullptr, ckpt_path);
}

std::vector<Metrics> Trainer::validate(LightningModule& module, DataModule& data, const std::string& ckpt_path) {
  return evaluate(*run_, module, &data, Stage::validate, ckpt_path);
}

std::vector<Metrics> Trainer::test(LightningModule& module, DataModule& data, const std::string& ckpt_path) {
  return evaluate(*run_, module, &data, Stage::test, ckpt_path);
}

std::vector<Metrics> Trainer::validate(LightningModule& module, const std::string& ckpt_path) {
  return evaluate(*run_, module, nullptr, Stage::validate, ckpt_path);
}

std::vector<Metrics> Trainer::test(LightningModule& module, const std::string& ckpt_path) {
  return evaluate(*run_, module, nullptr, Stage::test, ckpt_path);
}

Predictions Trainer::predict(LightningModule& module, const PredictOptions& options) {
  Predictions predictions;
  evaluate(*run_, module, nullptr, Stage::predict, options.ckpt_path,
           options.return_predictions ? &predictions : nullptr);
  return predictions;
}

Predictions Trainer::predict(LightningModule& module, DataModule& data, const PredictOptions& options) {
  Predictions predictions;
  evaluate(*run_, module, &data, Stage::predict, options.ckpt_path,
           options.return_predictions ? &predictions : nullptr);
  return predictions;
}

void Trainer::fit(LightningModule& module, DataModule&& data, const std::string& ckpt_path) {
  fit(module, data, ckpt_path);
}

void Trainer::fit(LightningModule& module, Loaders train, Loaders val, const std::string& ckpt_path) {
  LoaderData data(std::move(train), std::move(val));
  fit(module, data, ckpt_path);
}

std::vector<Metrics> Trainer::validate(LightningModule& module, DataModule&& data, const std::string& ckpt_path) {
  return validate(module, data, ckpt_path);
}

std::vector<Metrics> Trainer::validate(LightningModule& module, Loaders loaders, const std::string& ckpt_path) {
  LoaderData data({}, std::move(loaders));
  return validate(module, data, ckpt_path);
}

std::vector<Metrics> Trainer::test(LightningModule& module, DataModule&& data, const std::string& ckpt_path) {
  return test(module, data, ckpt_path);
}

std::vector<Metrics> Trainer::test(LightningModule& module, Loaders loaders, const std::string& ckpt_path) {
  LoaderData data({}, std::move(loaders));
  return test(module, data, ckpt_path);
}

Predictions Trainer::predict(LightningModule& module, DataModule&& data, const PredictOptions& options) {
  return predict(module, data, options);
}

Predictions Trainer::predict(LightningModule& module, Loaders loaders, const PredictOptions& options) {
  LoaderData data({}, std::move(loaders));
  return predict(module, data, options);
}

// Getters of Trainer: counters, metrics, parts.

namespace {

// A schedule that ends with the run has counted its steps by then.
void warn_of_other_length(Run& run, int64_t batches) {
  const auto& filled = run.fit.total_steps;
  const bool is_expected = accumulation_schedule(run) != nullptr || batches == run.fit.planned_accumulation;
  if (is_expected || std::none_of(filled.begin(), filled.end(), [](int64_t steps) { return steps > 0; })) return;
  if (std::exchange(run.fit.warned_of_total_steps, true)) return;
  Console::instance().warn("set_accumulate_grad_batches(" + std::to_string(batches) +
                           "): the learning-rate schedule ends with the run, and its length was computed for " +
                           std::to_string(run.fit.planned_accumulation) +
                           " batches per step. Derive the callback from AccumulationSchedule too, which gives the "
                           "trainer the numbers in advance, or set the scheduler's total_steps.");
}

// Inside a step: to the part of the batch that is computed, or to the recording.
template <class Value>
void log_to(Run& run, std::string_view name, Value& value, const LogOptions& options) {
  if (!run.plan.logging) return;
  if (run.entry.engine != nullptr) return context_of(run.entry.engine->core()).log(name, value, options);
  run.log_metric(name, value, options);
}

}  // namespace

int64_t Trainer::current_epoch() const {
  return run_->progress.epoch;
}
int64_t Trainer::global_step() const {
  return run_->progress.global_step;
}
int64_t Trainer::skipped_steps() const {
  return run_->progress.skipped_steps;
}
int64_t Trainer::logging_step() const {
  return run_->progress.windows;
}
int64_t Trainer::seen_batches() const {
  return run_->progress.total_batches;
}
int64_t Trainer::batch_idx() const {
  return run_->fit.epoch.batch_idx;
}
bool Trainer::is_last_batch() const {
  return run_->fit.epoch.last_batch;
}
bool Trainer::is_logged_window() const {
  return run_->is_logged_window();
}
bool Trainer::ends_logged_window() const {
  return !run_->fit.window_is_open() && is_logged_window();
}
std::optional<Stage> Trainer::stage() const {
  return run_->entry.stage;
}
bool Trainer::sanity_checking() const {
  return run_->entry.sanity_checking;
}
bool Trainer::training() const {
  return run_->entry.phase == Phase::train;
}
bool Trainer::auto_resumes() const {
  return run_->auto_resume;
}
const std::string& Trainer::stop_reason() const {
  return run_->entry.stop_reason;
}
bool Trainer::should_stop() const {
  return run_->entry.stop;
}

void Trainer::request_stop(const std::string& reason) {
  if (OutsideRequests::keep_stop(*run_, reason)) return;
  if (!run_->entry.stop) run_->entry.stop_reason = reason;
  run_->entry.stop = true;
}

void Trainer::skip_batch() {
  if (run_->fit.engine != nullptr) run_->fit.engine->skip_batch();
}

void Trainer::skip_rest_of_epoch() {
  cut_epoch(run_->strategy->ranks(), run_->fit.epoch);
}

int64_t Trainer::num_training_batches() const {
  return levin::num_training_batches(run_->fit);
}

std::vector<int64_t> Trainer::num_val_batches() const {
  return run_->entry.stage == Stage::fit || run_->entry.stage == Stage::validate ? run_->entry.eval.num_batches
                                                                                 : std::vector<int64_t>{};
}

std::vector<int64_t> Trainer::num_eval_batches() const {
  std::vector<int64_t> batches = run_->entry.eval.num_batches;
  if (run_->entry.sanity_checking) {
    for (int64_t& n : batches) n = std::min(n, run_->plan.num_sanity_val_steps);
  }
  return batches;
}

int64_t Trainer::estimated_stepping_batches() const {
  return levin::estimated_stepping_batches(*run_);
}

int64_t Trainer::accumulate_grad_batches() const {
  return run_->progress.accumulate;
}
void Trainer::set_accumulate_grad_batches(int64_t batches) {
  if (batches < 1) {
    throw ConfigError("set_accumulate_grad_batches: must be >= 1, got " + std::to_string(batches) +
                      ". Give the number of batches per optimizer step.");
  }
  warn_of_other_length(*run_, batches);
  run_->set_accumulation(batches);
}

int64_t Trainer::micro_batch_size() const {
  return run_->fit.engine != nullptr ? run_->fit.engine->micro_batch_size() : 0;
}

bool Trainer::has_validation() const {
  return std::any_of(run_->entry.eval.num_batches.begin(), run_->entry.eval.num_batches.end(),
                     [](int64_t n) { return n > 0; });
}

bool Trainer::validates_only_at_epoch_end() const {
  const RunPlan& plan = run_->plan;
  return plan.check_val_every_n_epoch == std::optional<int64_t>(1) && plan.val_check_interval == CheckInterval(1.0);
}

bool Trainer::completes(const Period& period) const {
  return levin::completes(*run_, period);
}

Period Trainer::resolve_period(const Period& period, const std::string& path) const {
  return levin::resolve_period(period, run_->options, run_->plan, path);
}

Metrics Trainer::callback_metrics() const {
  run_->refresh_callback_metrics();
  return run_->entry.callback_metrics;
}

const Metrics& Trainer::logged_metrics() const {
  return run_->logged_metrics.values();
}

Metrics Trainer::progress_bar_metrics() const {
  if (run_->entry.phase != Phase::idle) {
    for (const auto& [name, value] : run_->store().shown(run_->on_step(), run_->entry.failing)) {
      run_->entry.bar_metrics[name] = value;
    }
  }
  return run_->entry.bar_metrics;
}

void Trainer::log(std::string_view name, const at::Tensor& value, const LogOptions& options) {
  log_to(*run_, name, value, options);
}

void Trainer::log(std::string_view name, double value, const LogOptions& options) {
  log_to(*run_, name, value, options);
}

void Trainer::log(std::string_view name, metrics::Metric& metric, const LogOptions& options) {
  log_to(*run_, name, metric, options);
}

const RunPlan& Trainer::plan() const {
  return run_->plan;
}
const TrainerOptions& Trainer::options() const {
  return run_->options;
}
Strategy& Trainer::strategy() const {
  return *run_->strategy;
}
int64_t Trainer::global_rank() const {
  return run_->strategy->ranks().rank();
}
int64_t Trainer::local_rank() const {
  return run_->strategy->ranks().world().local_rank;
}
void Trainer::print(const std::string& text) const {
  Console::instance().print(text);
}
int64_t Trainer::world_size() const {
  return run_->strategy->ranks().world_size();
}
at::Device Trainer::device() const {
  if (const StepShare* share = this_share()) return share->slot.device;
  return run_->strategy->placement().device();
}
const std::vector<std::shared_ptr<Logger>>& Trainer::loggers() const {
  return run_->loggers;
}

std::string Trainer::log_dir() const {
  return run_->log_dir();
}

const std::vector<std::shared_ptr<Callback>>& Trainer::callbacks() const {
  return run_->entry.callbacks.empty() ? run_->trainer_callbacks : run_->entry.callbacks;
}

std::vector<LightningOptimizer>& Trainer::optimizers() {
  return run_->fit.optimizers();
}
std::vector<LRSchedulerConfig>& Trainer::lr_schedulers() {
  return run_->fit.schedulers;
}
const TimeSplit& Trainer::time_split() const {
  return run_->entry.time_split;
}
std::shared_ptr<Loader> Trainer::train_dataloader() const {
  return run_->fit.train.loaders.empty() ? nullptr : run_->fit.train.loaders[0];
}
Profiler* Trainer::profiler() const {
  return run_->profiler.get();
}
LightningModule* Trainer::module() const {
  return run_->entry.module;
}
DataModule* Trainer::datamodule() const {
  return run_->entry.data;
}
const std::string& Trainer::ckpt_path() const {
  return run_->entry.ckpt_path;
}
Seconds Trainer::elapsed() const {
  return run_->entry.elapsed;
}

}  // namespace levin
