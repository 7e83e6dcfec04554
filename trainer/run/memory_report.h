// The report of a run that ran out of memory: where it was, what the allocator held, and the largest users.
#pragma once

#include <exception>
#include <string>

#include "levin/core/gpu.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/step/out_of_memory.h"

namespace levin {

/// Returns the message: `place` (the hook, epoch, batch and step), the phase, the allocator's statistics if `memory`
/// has them, the largest users and what to try. `error`: for which is_out_of_memory is true. Called after the stack of
/// the failed step has been unwound; does not block.
[[nodiscard]] std::string memory_report(const Run& run, const std::string& place, const std::exception& error,
                                        const GpuMemory& memory);

/// Returns the message with the statistics of the run's device; a short one if there is no memory for it.
[[nodiscard]] std::string memory_report(const Run& run, const std::string& place, const std::exception& error);

}  // namespace levin
