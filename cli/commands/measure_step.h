// Measures the time of a run's steps on one device of this machine.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/commands/plan_cluster.h"

namespace levin {

/// Measures the run that these words describe, as after "levin fit": 5 warm-up steps, then up to 50 measured ones,
/// without logs and checkpoints. Throws ConfigError for mistakes in the words, and the run's exceptions.
[[nodiscard]] MeasuredStep measure_step(const std::vector<std::string>& run_words);

}  // namespace levin
