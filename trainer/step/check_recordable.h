// Which runs' steps can be recorded, and by what.
#pragma once

#include <memory>

#include "levin/core/device_work.h"
#include "levin/trainer/plan/run_plan.h"

namespace levin {

struct Run;

/// Throws ConfigError with one sentence on why the run's steps cannot be recorded, whatever they compute, or with
/// `automatic` are not. Called once the optimizers are set up; every rank.
[[nodiscard]] std::shared_ptr<StepRecorder> recorder_for(const Run& run, RecordSteps record);

/// Whether the module or a callback may change gradients between their judgement and the update, in
/// on_before_optimizer_step or configure_gradient_clipping.
[[nodiscard]] bool acts_before_update(const Run& run);

/// Whether the host performs the updates itself after each replay, as it does without recordings: the optimizer, a
/// callback before the update or the module's optimizer_step has something to do on the host.
[[nodiscard]] bool leaves_updates(const Run& run);

}  // namespace levin
