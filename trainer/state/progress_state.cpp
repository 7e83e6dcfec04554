#include "levin/trainer/state/progress_state.h"

#include "levin/core/random.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/fit_length.h"
#include "levin/trainer/trainer.h"

namespace levin {

State progress_state(const Run& run) {
  const Epoch& epoch = run.fit.epoch;
  const Progress& p = run.progress;
  const bool epoch_is_over = p.processed > p.epoch;
  const bool back_to_window = epoch.batch_running;
  const Window window = run.fit.engine != nullptr ? run.fit.engine->window() : Window();
  State state;
  auto set = [&](const char* name, int64_t value) { state.set<int64_t>(name, value); };
  set("epochs", p.processed);
  state.set("in_epoch", epoch.running && !epoch_is_over);
  set("next_batch", epoch_is_over ? 0 : back_to_window ? window.first_batch : epoch.next_batch);
  set("global_step", p.global_step);
  set("skipped_steps", p.skipped_steps);
  set("windows", p.windows);
  set("total_batches", back_to_window ? epoch.window_batches : p.total_batches);
  set("steps_in_epoch", epoch.running && !epoch_is_over ? p.global_step - epoch.first_step : 0);
  set("rest", epoch_is_over ? 0 : static_cast<int64_t>(epoch.pending));
  state.set("window_stepped", p.window_stepped);
  StepEngine::save(run.fit.engine.get(), state, back_to_window, run.entry.failing);
  set("accumulate", p.accumulate);
  set("num_threads", p.num_threads);
  set("world_size", run.strategy->ranks().world_size());
  set("batch_size", run.fit.train.loaders.empty() ? 0 : run.fit.train.loaders[0]->batch_size().value_or(0));
  set("train_loaded_in_epoch", run.fit.train_loaded_in_epoch);
  set("eval_loaded_in_epoch", run.fit.eval_loaded_in_epoch);
  set("seed", static_cast<int64_t>(default_seed()));
  state.set("epoch_cut", epoch.cut && !epoch_is_over);
  state.set("pass_ended", epoch.pass_ended && !epoch_is_over);
  const FitPosition planned = planned_position(run, state);
  set("planned_steps", planned.steps);
  set("planned_steps_in_epoch", planned.steps_in_epoch);
  state.set("stop", run.entry.stop);
  state.set("stop_reason", run.entry.stop_reason);
  state.set("eval_batches_seen", run.eval_batches_seen);
  state.set("metrics_used", run.fit.metrics_used);
  return state;
}

void load_progress(Run& run, const State& saved) {
  Epoch& epoch = run.fit.epoch;
  Progress& p = run.progress;
  p = Progress();
  epoch = Epoch();
  p.epoch = p.processed = saved.get<int64_t>("epochs");
  epoch.running = saved.get<bool>("in_epoch");
  epoch.next_batch = saved.get<int64_t>("next_batch");
  epoch.batch_idx = epoch.next_batch - 1;
  p.global_step = saved.get<int64_t>("global_step");
  p.skipped_steps = saved.get<int64_t>("skipped_steps");
  p.windows = saved.get<int64_t>("windows");
  p.total_batches = saved.get<int64_t>("total_batches");
  epoch.first_step = p.global_step - saved.get<int64_t>("steps_in_epoch");
  const auto rest = saved.get<int64_t>("rest");
  if (rest < 0 || rest > static_cast<int64_t>(PendingWork::schedulers)) {
    throw CheckpointError("saved state: rest is " + std::to_string(rest) + ". The checkpoint is from another Levin.");
  }
  epoch.pending = static_cast<PendingWork>(rest);
  p.window_stepped = saved.get<bool>("window_stepped");
  run.fit.engine->load(saved, epoch.next_batch);
  run.set_accumulation(saved.get<int64_t>("accumulate"));
  p.num_threads = saved.has("num_threads") ? saved.get<int64_t>("num_threads") : 0;
  epoch.window_batches = p.total_batches - run.fit.engine->window().seen;
  run.fit.train_loaded_in_epoch = saved.get<int64_t>("train_loaded_in_epoch");
  const bool has_eval = saved.has("eval_loaded_in_epoch");
  run.fit.eval_loaded_in_epoch = has_eval ? saved.get<int64_t>("eval_loaded_in_epoch") : p.epoch;
  set_default_seed(static_cast<uint64_t>(saved.get<int64_t>("seed")));
  epoch.cut = saved.get<bool>("epoch_cut");
  epoch.pass_ended = saved.has("pass_ended") && saved.get<bool>("pass_ended");
  run.entry.stop = saved.get<bool>("stop");
  run.entry.stop_reason = saved.get<std::string>("stop_reason");
  run.eval_batches_seen = saved.get<std::vector<int64_t>>("eval_batches_seen");
  if (saved.has("metrics_used")) run.fit.metrics_used = saved.get<std::vector<int64_t>>("metrics_used");
}

void expect_batches_of(Run& run, const State& checkpoint) {
  const State progress = checkpoint.part("progress");
  if (!progress.has("batch_size") || !progress.has("world_size")) return;  // weights only
  run.fit.resumed_world_size = progress.get<int64_t>("world_size");
  run.fit.resumed_batch_size = progress.get<int64_t>("batch_size");
  if (run.entry.module->automatic_optimization()) run.fit.start = saved_position(progress);
}

namespace {

// The running sums of an epoch over all ranks' samples; every rank continues with its own.
State state_of_all_ranks(const Run& run) {
  MetricStore all = run.entry.train_metrics;
  all.sync_epoch(run.strategy->ranks(), /*keep_states=*/true);
  return all.state_dict();
}

}  // namespace

State metrics_state(const Run& run) {
  State state;
  // The store of an epoch that is over is empty for the next one.
  if (run.fit.epoch.running) {
    const bool together = run.has_peers() && !run.entry.failing;
    state.put("train", together ? state_of_all_ranks(run) : run.entry.train_metrics.state_dict());
  }
  state.set("callback_metrics", run.entry.callback_metrics);
  state.set("measured_at", run.entry.measured_at);
  state.set("logged_metrics", run.logged_metrics.values());
  state.set("progress_bar_metrics", run.entry.bar_metrics);
  return state;
}

void load_metrics(Run& run, const State& saved) {
  if (saved.has("train")) {
    run.entry.train_metrics.load_state_dict(saved.part("train"));
    if (run.strategy->ranks().rank() != 0) run.entry.train_metrics.drop_totals();  // rank 0 has the totals of all ranks
  }
  run.entry.callback_metrics = saved.get<Metrics>("callback_metrics");
  if (saved.has("measured_at")) run.entry.measured_at = saved.get<std::map<std::string, int64_t>>("measured_at");
  run.logged_metrics = saved.get<Metrics>("logged_metrics");
  run.entry.bar_metrics = saved.get<Metrics>("progress_bar_metrics");
}

HowFar how_far(const ConfigNode& checkpoint_values) {
  State all;
  all.values = checkpoint_values;
  const State progress = all.part("progress");
  return {progress.get<int64_t>("total_batches"), progress.get<int64_t>("epochs"), progress.get<int64_t>("rest") == 0};
}

}  // namespace levin
