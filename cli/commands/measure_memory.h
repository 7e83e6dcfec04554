// Measures what the step of a run holds, on this machine, without training.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/commands/plan_memory.h"

namespace levin {

/// Of the run that these words describe, as after "levin fit": on one device of the kind that it asks for, without logs
/// and checkpoints. Throws ConfigError for what is wrong with them, and what the run throws.
[[nodiscard]] MeasuredMemory measure_memory(const std::vector<std::string>& run_words);

}  // namespace levin
