// Requeues Slurm jobs: SIGUSR1, which Slurm sends before the job's time limit (sbatch --signal=SIGUSR1@90), saves a
// checkpoint and requeues the job; a requeued job continues from there. TrainerOptions.auto_requeue turns it off. Other
// steps of the same job are requeued with it.
#pragma once

#include <string>

#include "levin/core/process/this_process.h"
#include "levin/trainer/trainer_options.h"

namespace levin {

/// Returns whether Slurm has requeued this job, so that the run must continue where it stopped.
[[nodiscard]] bool is_requeued(const TrainerOptions& options, const Variables& variables = process_variables());

/// Returns whether a stop by `signal_number` requests that the job be requeued.
[[nodiscard]] bool asks_for_requeue(const TrainerOptions& options, int signal_number,
                                    const Variables& variables = process_variables());

/// Requeues the job (scontrol requeue), which soon ends it. Rank 0 calls it, once the checkpoint is on the disk.
/// Returns a sentence about the outcome; never throws.
[[nodiscard]] std::string requeue_job(const Variables& variables = process_variables());

}  // namespace levin
