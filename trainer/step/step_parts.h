// The objects that a StepEngine works with, its settings, and the position of each batch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "levin/trainer/plan/run_plan.h"

namespace levin {

class LightningModule;
class ModuleReplicas;
class Precision;
class Profiler;
class Recomputation;
class StepHooks;
class StepOutput;
class Strategy;
class TimeSplit;
struct RunningHook;

/// Counters that continue over several engines, and over restarts.
struct StepCounters {
  int64_t global_step = 0;    // optimizer steps
  int64_t skipped_steps = 0;  // optimizer steps not taken because a scaled gradient overflowed
  int64_t accumulate = 1;     // batches of a window, from the next window on
};

/// The options of an engine.
struct StepSettings {
  NonFiniteLoss nonfinite_loss = NonFiniteLoss::stop;
  double gradient_clip_val = 0;  // 0: no clipping
  ClipAlgorithm gradient_clip_algorithm = ClipAlgorithm::norm;
  int64_t micro_batch_size = 0;  // samples of one pass; 0: whole batches; kAutoMicroBatch: what fits
  RecordSteps record_steps = RecordSteps::no;
  bool sync_batchnorm = false;
  bool detect_anomaly = false;
  bool acts_before_update = false;    // the module or a hook may change gradients after they are judged
  std::string acts_inside_step = "";  // the class of a callback that acts around backward; "": none does
};

/// The objects that an engine works with; all of them outlive the engine.
struct StepParts {
  LightningModule& module;
  Strategy& strategy;
  Precision& precision;
  StepHooks& hooks;
  RunningHook& running;
  StepCounters& counters;
  TimeSplit& time_split;
  StepOutput& outputs;                                  // of the running batch
  const std::shared_ptr<ModuleReplicas>& replicas;      // null: the module computes whole batches
  const std::shared_ptr<Recomputation>& recomputation;  // null: nothing is computed again
  Profiler* profiler = nullptr;                         // null: nothing is profiled
  StepSettings settings = {};
};

/// The position of the running batch, for messages and hooks.
struct StepPlace {
  int64_t epoch = 0;
  int64_t batch_idx = 0;        // in the epoch
  int64_t total_batches = 0;    // completed before it, over all epochs
  bool is_last = false;         // no batch follows, so its window ends with it
  bool length_is_known = true;  // false: the batches may end before the window is full
  bool is_trial = false;        // its result is not kept
};

}  // namespace levin
