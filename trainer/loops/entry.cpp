#include "levin/trainer/loops/entry.h"

#include <ATen/Context.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/program_start.h"
#include "levin/core/storage/open_store.h"
#include "levin/core/storage/staging.h"
#include "levin/libtorch/anomaly_scope.h"
#include "levin/precision/default_dtype.h"
#include "levin/trainer/loops/evaluation_loop.h"
#include "levin/trainer/loops/fit_loop.h"
#include "levin/trainer/loops/make_run.h"
#include "levin/trainer/loops/plan_recomputation.h"
#include "levin/trainer/loops/running_entry.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/make_replicas.h"
#include "levin/trainer/run/memory_format.h"
#include "levin/trainer/run/profiled_stage.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run_access.h"
#include "levin/trainer/run/run_folders.h"
#include "levin/trainer/run/run_hooks.h"
#include "levin/trainer/run/run_reporter.h"
#include "levin/trainer/run/set_up_optimizers.h"
#include "levin/trainer/state/checkpoint.h"
#include "levin/trainer/state/checkpoint_search.h"
#include "levin/trainer/state/missing_state.h"
#include "levin/trainer/state/model_match.h"
#include "levin/trainer/state/progress_state.h"
#include "levin/trainer/state/run_records.h"
#include "levin/trainer/step/loss_scaling.h"
#include "levin/trainer/step/override.h"

namespace levin {

namespace {

// A checkpoint in an object store is fetched, once per machine.
void fetch_if_remote(Run& run, std::string& path) {
  std::string fetched = staged(path);
  if (fetched == path) return;
  once_per_node(run.strategy->ranks(), [&] { fetch_staged(fetched); });
  path = std::move(fetched);
}

StartingPoint set_up(Run& run) {
  const Stage stage = *run.entry.stage;
  fetch_if_remote(run, run.entry.ckpt_path);
  if (run.weights) fetch_if_remote(run, run.weights->path);
  const std::string& from = run.entry.ckpt_path;
  const bool is_file = !from.empty() && from != "best" && from != "last" && from != kBestIfAny;
  std::error_code code;
  if (is_file && !std::filesystem::exists(run.entry.ckpt_path, code)) {  // before anything is created
    throw CheckpointError("ckpt_path: there is no file " + shown_path(run.entry.ckpt_path) +
                          ". Give the path of a checkpoint or of a run's folder, \"best\" or \"last\".");
  }
  const auto weights = std::exchange(run.weights, std::nullopt);
  if (weights && run.entry.ckpt_path.empty() && !std::filesystem::exists(weights->path, code)) {
    throw CheckpointError("weights.path: there is no file or folder " + shown_path(weights->path) + ".");
  }
  check_same_options(run);
  using D = DataModule;
  run.entry.data_moves_batches =
      run.entry.data != nullptr && detail::overrides<D>(*run.entry.data, &D::transfer_batch_to_device);
  assemble_callbacks(run);
  if (run.entry.data != nullptr) {
    run.entry.data->set_float_dtype(run.precision->dtype() == at::kDouble ? at::kDouble : at::kFloat);
  }
  {
    const HookScope scope(run.entry, Hook::prepare_data);
    once_per_node(run.strategy->ranks(), [&] {
      if (run.entry.data != nullptr) note_caller(run.entry, *run.entry.data).prepare_data();
      note_caller(run.entry, *run.entry.module).prepare_data();
    });
  }
  start_loggers(run);
  {
    const HookScope scope(run.entry, Hook::setup);
    if (run.entry.data != nullptr) note_caller(run.entry, *run.entry.data).setup(stage);
    const auto making =
        run.strategy->placement().model_sharded_context(stage == Stage::fit);  // some call configure_model
    for (const auto& callback : run.entry.callbacks)
      note_caller(run.entry, *callback).setup(run.trainer, *run.entry.module, stage);
    note_caller(run.entry, *run.entry.module).setup(stage);
  }
  {
    const auto making = run.strategy->placement().model_sharded_context(stage == Stage::fit);
    call_module(run.entry, Hook::configure_model, [](LightningModule& m) { m.configure_model(); });
    // First, so that saved weights are loaded in the run's precision.
    if (const auto dtype = run.precision->dtype()) run.entry.module->to(*dtype);
  }
  StartingPoint start = find_start(run);
  check_changed_options(run, start, /*own=*/start.continues || !is_file);
  if (start.continues) Console::instance().print("auto_resume: continuing from " + shown_path(start.path) + ".");
  begin_records(run);
  run.entry.ckpt_path = start.path;
  if (!start.path.empty()) log::checkpoint.info("starts from {}", start.path);
  if (start.path.empty() && weights) load_weights(*run.entry.module, *weights);
  {
    const auto making = run.strategy->placement().model_sharded_context(stage == Stage::fit);
    call_callbacks(run.entry, Hook::adapt_model,
                   [&](Callback& callback) { callback.adapt_model(run.trainer, *run.entry.module); });
  }
  if (!start.path.empty()) {
    call_module(run.entry, Hook::on_load_checkpoint,
                [&](LightningModule& m) { m.on_load_checkpoint(start.checkpoint); });
    restore_weights(*run.entry.module, start.checkpoint, start.path);
    restore_callbacks(run, start.checkpoint);
  }
  run.strategy->placement().place(*run.entry.module);
  if (run.options.sync_batchnorm) run.strategy->use_sync_batchnorm();
  if (run.plan.channels_last) {
    const auto making = run.strategy->placement().model_sharded_context(stage == Stage::fit);
    use_channels_last(*run.entry.module);
  }
  make_replicas(run);
  if (stage == Stage::fit) start_recomputation(run);
  start_sequential_calls(run.entry);
  run.strategy->set_up(module_tensors(*run.entry.module), stage == Stage::fit);
  return start;
}

// `body`: what is done once everything is set up.
template <class Body>
void run_fit(Run& run, const StartingPoint& start, Body body) {
  run.fit = Fit(run.plan);
  naming_checkpoint(start.path, [&] { expect_batches_of(run, start.checkpoint); });
  set_up_optimizers(run);
  check_same_optimizers(run.strategy->ranks(), run.fit);
  call_plain(run, Hook::on_fit_start, &Callback::on_fit_start, &LightningModule::on_fit_start);
  if (run.fit.restore_failed) std::rethrow_exception(run.fit.restore_failed);
  record_hyper_parameters(run);
  if (!start.path.empty()) restore_training(run, start.checkpoint, start.path);
  separate_random_numbers(run.strategy->ranks(), run.progress.global_step);  // a resumed fit's own are restored later
  if (run.reporter != nullptr) run.reporter->begin(run, run.fit.resumed);
  agree_on_stop(run);
  using M = LightningModule;
  if (detail::overrides<M>(*run.entry.module, &M::backward)) {
    run.strategy->gradients().use_backward(
        [module = run.entry.module](const at::Tensor& loss) { module->backward(loss); });
  }
  run.fit.engine->begin();
  const AnomalyScope anomaly(run.plan.detect_anomaly);
  run.entry.module->train();
  body(FitLoop(run));
  report_skipped_steps(*run.precision, run.progress);
  call_plain(run, Hook::on_fit_end, &Callback::on_fit_end, &LightningModule::on_fit_end);
}

// Runs one entry point from setup to teardown, also if something fails in between.
template <class Body>
void run_entry_point(Run& run, LightningModule& module, DataModule* data, Stage stage, const std::string& ckpt_path,
                     Body body) {
  RunningEntry entry(run, {module, data, stage, ckpt_path});
  try {
    const StartingPoint start = set_up(run);
    {
      const ProfiledStage profiled(run);
      body(start);
    }
    entry.succeed();
  } catch (...) {
    entry.fail();
  }
  if (run.profiler == nullptr) return;
  warn_if_it_throws("summary of the profiler", [&] { Console::instance().print(run.profiler->summary()); });
}

}  // namespace

LoaderData::LoaderData(Loaders train, Loaders eval) : train_(std::move(train)), eval_(std::move(eval)) {
  if (train_.size() <= 1) return;
  throw ConfigError("fit: " + std::to_string(train_.size()) +
                    " training loaders were given, and one epoch is one pass over one of them. Give one; those for "
                    "validation come after it.");
}

void run_fit(Run& run, LightningModule& module, DataModule* data, const std::string& ckpt_path) {
  run_entry_point(run, module, data, Stage::fit, ckpt_path,
                  [&](const StartingPoint& start) { run_fit(run, start, [](FitLoop&& loop) { loop.run(); }); });
}

std::optional<MeasuredFit> measure_fit(Trainer& trainer, LightningModule& module, DataModule* data, int64_t replicas) {
  Run& run = RunAccess::of(trainer);
  std::optional<MeasuredFit> measured;
  run_entry_point(run, module, data, Stage::fit, "", [&](const StartingPoint& start) {
    run_fit(run, start, [&](FitLoop&& loop) { measured = loop.measure(replicas); });
  });
  return measured;
}

std::optional<MeasuredFit> measure_fit(Trainer& trainer, LightningModule& module, Loaders train, int64_t replicas) {
  LoaderData data(std::move(train), {});
  return measure_fit(trainer, module, &data, replicas);
}

std::vector<Metrics> evaluate(Run& run, LightningModule& module, DataModule* data, Stage stage,
                              const std::string& ckpt_path, Predictions* predictions) {
  std::vector<Metrics> results;
  run_entry_point(run, module, data, stage, ckpt_path, [&](const StartingPoint&) {
    run.entry.engine = make_engine(run);
    load_eval_loaders(run, stage);
    if (run.entry.eval.loaders.empty()) {
      Console::instance().print("Nothing to " + enum_name(stage) + ": the limit of its batches is 0.");
    }
    if (run.reporter != nullptr) run.reporter->begin(run, false);
    EvaluationLoop loop(run, stage);
    if (predictions == nullptr) loop.keep_no_predictions();
    results = loop.run(kUnlimited);
    if (predictions != nullptr) *predictions = loop.take_predictions();
  });
  return results;
}

}  // namespace levin
