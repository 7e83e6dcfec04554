// State with the lifetime of one entry point, a fit or an evaluation: constructed again for the next, never reset. Its
// results can be read until then.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "levin/checkpoint/checkpoint_writer.h"
#include "levin/core/process/folder_lock.h"
#include "levin/core/state.h"
#include "levin/data/data_module.h"
#include "levin/profilers/time_split.h"
#include "levin/trainer/metrics.h"
#include "levin/trainer/run/loaders.h"
#include "levin/trainer/step/step_hooks.h"
#include "levin/trainer/step_output.h"

namespace levin {

class Callback;
class LightningModule;
class ModuleReplicas;
class Recomputation;
class RemoteFolder;
class SequentialCalls;
class StepEngine;

/// Which loop calls user code; determines where `log` goes.
enum class Phase { idle, train, validate, test, predict };

/// The outcome of the checkpoints that an entry point requested.
struct Saves {
  int64_t good = 0;
  int64_t failed = 0;
  std::string last_failure = "";
};

/// An entry point: its module, data, callbacks and metrics.
struct EntryPoint : RunningHook {
  LightningModule* module = nullptr;
  DataModule* data = nullptr;       // while it runs
  bool data_moves_batches = false;  // it overrides transfer_batch_to_device
  std::optional<Stage> stage = std::nullopt;
  std::string ckpt_path = "";
  std::chrono::steady_clock::time_point started = {};
  Seconds elapsed = Seconds(0);
  bool running = false;
  Phase phase = Phase::idle;
  bool sanity_checking = false;
  bool failing = false;      // an exception is propagating: the other ranks no longer communicate
  bool records_due = false;  // an earlier run's exist, and are replaced once training continues

  std::vector<std::shared_ptr<Callback>> callbacks = {};           // with the module's own, checkpoints last
  std::vector<std::unique_ptr<FolderLock>> folder_locks = {};      // no other run is active in them
  std::vector<std::shared_ptr<RemoteFolder>> remote_folders = {};  // of them, those that are copied to a store
  int64_t log_file = 0;                                            // the number of log::open; 0: none
  std::shared_ptr<ModuleReplicas> replicas = nullptr;              // null: the module computes whole batches
  std::shared_ptr<SequentialCalls> sequential_calls = nullptr;
  std::shared_ptr<Recomputation> recomputation = nullptr;  // null: nothing is computed again
  LoaderSet eval = {};                                     // in fit: the validation loaders
  std::shared_ptr<StepEngine> engine = nullptr;            // in fit: the fit's

  bool stop = false;
  bool stop_agreed = false;  // with several ranks: all have received a stop request
  std::string stop_reason = "";

  MetricStore train_metrics = {};
  MetricStore eval_metrics = {};
  StepOutput outputs = {};  // of the running batch
  bool eval_on_step = true;
  int64_t eval_batch_idx = -1;  // of the running evaluation batch, in its loader
  Metrics callback_metrics = {};
  std::map<std::string, int64_t> measured_at = {};  // by name in callback_metrics: training batches done then
  std::map<std::string, int64_t, std::less<>> logged_at = {};  // by name: training batches done when training logged it
  std::set<std::string> batch_only = {};                       // logged by evaluations for single batches only
  int64_t validations = 0;                                     // validations of this fit that have ended
  Metrics bar_metrics = {};
  TimeSplit time_split = {};  // of its training steps
  int64_t samples = 0;        // of training batches, on this rank

  size_t torn_down = 0;  // how many had their teardown called

  // Requested checkpoints, captured between this batch and the next.
  std::vector<CheckpointRequest> checkpoint_requests = {};
  Saves saves = {};
  // The state (without weights) at the start of a running validation: if the run stops inside it, it resumes from
  // there, and validates again.
  std::optional<State> before_validation = std::nullopt;
};

}  // namespace levin
