#include "levin/trainer/loops/running_entry.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <typeinfo>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/stop_signal.h"
#include "levin/metrics/update_sources.h"
#include "levin/recompute/recomputation.h"
#include "levin/recompute/sequential_calls.h"
#include "levin/strategies/launch/rank_process.h"
#include "levin/trainer/checkpoint_callback.h"
#include "levin/trainer/loops/run_end.h"
#include "levin/trainer/plan/backend_settings.h"
#include "levin/trainer/run/failed_place.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/run_access.h"
#include "levin/trainer/run/run_folders.h"
#include "levin/trainer/run/warnings_once.h"
#include "levin/trainer/state/checkpoint.h"
#include "levin/trainer/step/module_replicas.h"
#include "levin/trainer/step/step_engine.h"

namespace levin {

namespace {

bool same_class(const Callback& one, const Callback& other) {
  return typeid(one) == typeid(other);
}

}  // namespace

// The module's callbacks replace the trainer's of the same class; checkpoint callbacks come last, to save the results
// of the others.
void assemble_callbacks(Run& run) {
  std::vector<std::shared_ptr<Callback>> own;
  Callbacks given =
      call_module(run.entry, Hook::configure_callbacks, [](LightningModule& m) { return m.configure_callbacks(); });
  for (auto& callback : given) {
    own.push_back(callback.object("configure_callbacks"));
    if (own.back() != nullptr) continue;
    throw ConfigError("configure_callbacks: callback " + std::to_string(own.size() - 1) +
                      " of the list is null. Give a callback, or leave the entry out.");
  }
  std::vector<std::shared_ptr<Callback>> all;
  for (const auto& callback : run.trainer_callbacks) {
    const bool replaced = std::any_of(own.begin(), own.end(), [&](const auto& o) { return same_class(*o, *callback); });
    if (!replaced) all.push_back(callback);
  }
  all.insert(all.end(), own.begin(), own.end());
  std::stable_partition(all.begin(), all.end(), [](const auto& callback) {
    return dynamic_cast<const Checkpoint*>(callback.get()) == nullptr;
  });
  std::map<std::string, int> keys;
  for (const auto& callback : all) {
    if (!callback->state_key().empty() && ++keys[callback->state_key()] > 1) {
      throw ConfigError("TrainerOptions.callbacks: two callbacks keep their state as \"" + callback->state_key() +
                        "\". Give them options that differ, or drop one.");
    }
  }
  run.entry.callbacks = std::move(all);
}

namespace {

metrics::UpdateSource update_source(const EntryPoint& entry) {
  const bool trains = entry.phase == Phase::train;
  const bool validates = entry.phase == Phase::validate;
  return {.stage = trains ? "training" : (validates ? "validation" : ""),
          .hook = hook_name(entry.place.hook),
          .loader = trains ? -1 : entry.place.dataloader_idx};
}

// However an entry point ends, it releases what it has used: the data module may be destroyed after the call, and
// loaders' threads end. Its results can still be read.
class EntryScope {
 public:
  EntryScope(Run& run, const EntryTarget& target) : run_(run) {
    EntryPoint& entry = run.entry = EntryPoint();
    entry.module = &target.module;
    entry.data = target.data;
    entry.stage = target.stage;
    entry.ckpt_path = target.ckpt_path;
    entry.started = std::chrono::steady_clock::now();
    entry.running = true;
    if (run.entry.stage != Stage::fit) return;
    run.fit.train = LoaderSet();  // not the length of the fit before
    run.fit.start = FitPosition();
  }
  ~EntryScope() {
    EntryPoint& entry = run_.entry;
    entry.replicas.reset();
    entry.sequential_calls.reset();
    entry.recomputation.reset();
    run_.strategy->gradients().use_backward({});
    warn_if_it_throws("tear_down of the strategy", [this] { run_.strategy->tear_down(); });
    if (entry.engine != nullptr) entry.engine->end();
    entry.eval = LoaderSet();
    run_.fit.train = {.num_batches = std::move(run_.fit.train.num_batches)};
    entry.data = nullptr;
    entry.elapsed = std::chrono::steady_clock::now() - entry.started;
    entry.phase = Phase::idle;
    entry.running = entry.sanity_checking = false;
    release_folders(entry);
  }
  EntryScope(const EntryScope&) = delete;
  EntryScope& operator=(const EntryScope&) = delete;

 private:
  Run& run_;
};

// Before anything of the run is changed: a hook that calls an entry point gets an error, and its run can continue.
void attach(Run& run, LightningModule& module, Stage stage) {
  const std::string call = "Trainer::" + enum_name(stage);
  if (run.entry.running) {
    throw Error(call + " was called in " + calling_hook(run.entry) + ", while the same trainer runs " +
                enum_name(*run.entry.stage) +
                ". Call it after that has returned, or use another Trainer with another module.");
  }
  if (module.has_trainer() && RunAccess::of(module.trainer()).entry.running) {
    const Run& other = RunAccess::of(module.trainer());
    throw Error(call + " was called in " + calling_hook(other.entry) + ", for a module that another trainer runs " +
                enum_name(*other.entry.stage) +
                " with. Call it after that has returned, or give it a module of its own.");
  }
  RunAccess::attach(module, run.trainer);
}

// The settings of this thread and process that last as long as an entry point of the Trainer.
struct ProcessScopes {
  explicit ProcessScopes(Run& run)
      : sources([&run] { return update_source(run.entry); }),
        signals({.grace = run.options.stop_grace, .launcher_decides = launched_by_levin()}) {}

  metrics::UpdateSources sources;
  WarningsOnce warnings = {};
  WriteErrorsScope writes = {};
  StopSignalScope signals;
};

}  // namespace

struct RunningEntry::Scopes {
  Scopes(Run& run, const EntryTarget& target) : entry(run, target), settings(run.options, run.plan) {
    if (target.host == EntryHost::trainer) process.emplace(run);
  }

  EntryScope entry;
  BackendSettings settings;
  std::optional<ProcessScopes> process = std::nullopt;
};

RunningEntry::RunningEntry(Run& run, const EntryTarget& target) : run_(run) {
  attach(run, target.module, target.stage);
  scopes_ = std::make_shared<Scopes>(run, target);
}

void RunningEntry::succeed() {
  capture_checkpoints(run_);
  run_.checkpoint_writer.finish();
  check_saves(run_);
  run_.strategy->leave();
  tear_down(run_);
  capture_checkpoints(run_);  // requested in teardown
  run_.checkpoint_writer.finish();
  end_logs(run_, "success");
  finish_uploads(run_);
}

void RunningEntry::fail() {
  fail_run(run_);
}

void RunningEntry::end_failed(const std::string& error) {
  run_.entry.failing = true;
  run_.checkpoint_writer.finish();
  end_logs(run_, "failed", error);
  finish_uploads(run_);
}

}  // namespace levin
