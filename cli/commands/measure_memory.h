// Measures the memory of a run's step, on this machine, without training.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/commands/plan_memory.h"

namespace levin {

/// Measures the run that these words describe, as after "levin fit": on one device of the requested kind, without logs
/// and checkpoints. Throws ConfigError for mistakes in the words, and the run's exceptions.
[[nodiscard]] MeasuredMemory measure_memory(const std::vector<std::string>& run_words);

}  // namespace levin
