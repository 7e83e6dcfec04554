// Runs a few steps of a run on one device of this machine, to see what they take.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/commands/plan_cluster.h"

namespace levin {

/// Of the run that these words describe, as after "levin fit": 5 steps to warm up, then up to 50 that are measured,
/// without logs and checkpoints. Throws ConfigError for what is wrong with them, and what the run throws.
[[nodiscard]] MeasuredStep measure_step(const std::vector<std::string>& run_words);

}  // namespace levin
