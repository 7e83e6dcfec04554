// The Slurm job that this process runs in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "levin/core/variables.h"

namespace levin {

struct SlurmJob {
  std::string id = "";   // what scontrol calls it: "12345"; of an array "12345_2"
  int64_t restarts = 0;  // how often Slurm has requeued it
};

/// Unset outside of Slurm, and in an interactive allocation (a job named bash or interactive). A job with an invalid
/// number is ignored: it must not reach scontrol.
[[nodiscard]] std::optional<SlurmJob> slurm_job(const Variables& variables);

/// Whether the job's name is that of an interactive one.
[[nodiscard]] bool is_interactive_slurm(const Variables& variables);

}  // namespace levin
