// What a run that ran out of memory says: where it was, what the allocator held, and who holds the most.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "levin/core/error.h"
#include "levin/core/gpu.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// A device has no memory left for what a step needs.
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

/// The message: `place` (the hook, epoch, batch and step), the phase, the allocator's figures where `memory` has them,
/// the largest users and what to try. Called after the failed step has been unwound; waits for nothing.
[[nodiscard]] std::string memory_report(const Run& run, const std::string& place, const c10::OutOfMemoryError& error,
                                        const GpuMemory& memory);

/// The same with the figures of the run's device.
[[nodiscard]] std::string memory_report(const Run& run, const std::string& place, const c10::OutOfMemoryError& error);

}  // namespace levin
