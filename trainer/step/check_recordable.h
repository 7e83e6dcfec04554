// Decides whether a run's steps can be recorded, and by which recorder.
#pragma once

#include <memory>

#include "levin/core/device_work.h"
#include "levin/trainer/plan/run_plan.h"

namespace levin {

struct StepCore;

/// Returns the recorder for the run's steps. Throws ConfigError with one sentence on why they cannot be recorded,
/// regardless of what they compute, or why they are not with `automatic`. Every rank calls it, once the optimizers are
/// set up.
[[nodiscard]] std::shared_ptr<StepRecorder> recorder_for(const StepCore& core, RecordSteps record);

/// Returns whether the host performs the updates itself after each replay, as it does without recordings: the
/// optimizer, a callback before the update or the module's optimizer_step runs code on the host.
[[nodiscard]] bool updates_on_host(const StepCore& core);

}  // namespace levin
