// Runs the trials of a sweep in local slots until the search is finished, or a signal asks to stop.
#pragma once

#include <string>

#include "levin/cli/sweep/sweep_store.h"

namespace levin {

/// What the end of a sweep was.
enum class SweepEnd { finished, out_of_time, too_many_failures, unlogged_metric, stopped };

/// How a sweep ended.
struct SweepResult {
  SweepEnd end = SweepEnd::finished;
  int signal_number = 0;     // stopped
  std::string problem = "";  // too many failures: the last one; unlogged metric: what was logged
};

/// `program`: the levin tool. `only`: run this trial alone (-1: all), for a task of a Slurm array.
[[nodiscard]] SweepResult run_sweep(SweepStore& store, const std::string& program, int64_t only = -1);

}  // namespace levin
