// Which devices a run uses: TrainerOptions::accelerator and devices, and what NVIDIA's driver reports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/trainer/plan/run_plan.h"

namespace levin {

/// Returns the possible values of TrainerOptions::accelerator.
[[nodiscard]] std::vector<std::string> known_accelerators();

/// Fills plan.device: "cpu" or LibTorch's name of a device type. Adds a problem for an unknown accelerator, and for one
/// that cannot be used, which names what is missing. Does not initialize CUDA.
void resolve_accelerator(const TrainerOptions& options, RunPlan& plan, Problems& problems);

/// Returns how many devices were requested on each node; unset: auto. Except on the CPU also fills plan.device_indices:
/// the named devices, the first n, or all with auto. Adds a problem for anything that is not a number or list of
/// devices, and for GPUs that do not exist.
[[nodiscard]] std::optional<int64_t> resolve_devices(const TrainerOptions& options, RunPlan& plan, Problems& problems);

}  // namespace levin
