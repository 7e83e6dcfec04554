// Which devices a run is to have: TrainerOptions::accelerator and devices, and what NVIDIA's driver says is there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/error.h"
#include "levin/trainer/plan/run_plan.h"

namespace levin {

/// What TrainerOptions::accelerator may be.
[[nodiscard]] std::vector<std::string> known_accelerators();

/// Fills plan.device. Adds a problem for an unknown accelerator, and for a gpu that cannot be used, saying what is
/// missing. Nothing of CUDA is opened yet.
void resolve_accelerator(const TrainerOptions& options, RunPlan& plan, Problems& problems);

/// How many devices were asked for on each node; unset: auto. With GPUs also fills plan.gpus: those that were named,
/// the first so many, or with auto all that are there. Adds a problem for what is no number or list of devices, and for
/// GPUs that are not there.
[[nodiscard]] std::optional<int64_t> resolve_devices(const TrainerOptions& options, RunPlan& plan, Problems& problems);

}  // namespace levin
