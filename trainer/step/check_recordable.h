// Which runs' steps can be recorded, and by what.
#pragma once

#include <memory>

#include "levin/core/device_work.h"
#include "levin/trainer/plan/run_plan.h"

namespace levin {

struct StepCore;

/// Throws ConfigError with one sentence on why the run's steps cannot be recorded, regardless of what they compute, or
/// with `automatic` are not. Called once the optimizers are set up; every rank.
[[nodiscard]] std::shared_ptr<StepRecorder> recorder_for(const StepCore& core, RecordSteps record);

/// Whether the host performs the updates itself after each replay, as it does without recordings: the optimizer, a
/// callback before the update or the module's optimizer_step has something to do on the host.
[[nodiscard]] bool updates_on_host(const StepCore& core);

}  // namespace levin
