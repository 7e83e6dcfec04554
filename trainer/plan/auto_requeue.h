// What a fit does in a job of Slurm: SIGUSR1, which Slurm sends before the job's time is over (sbatch
// --signal=SIGUSR1@90), saves a checkpoint and has the job started again; a job started again continues from there.
// Switched off by TrainerOptions.auto_requeue. Other steps of the same job are started again with it.
#pragma once

#include <string>

#include "levin/core/variables.h"
#include "levin/trainer/trainer_options.h"

namespace levin {

/// Whether Slurm has started this job again, and the run is to go on where it stood.
[[nodiscard]] bool is_requeued(const TrainerOptions& options, const Variables& variables = process_variables());

/// Whether a stop by `signal_number` asks for the job to be started again.
[[nodiscard]] bool asks_for_requeue(const TrainerOptions& options, int signal_number,
                                    const Variables& variables = process_variables());

/// Has Slurm start the job again (scontrol requeue), which ends it soon. Rank 0, once the checkpoint is on the disk.
/// A sentence that says what came of it; never throws.
[[nodiscard]] std::string requeue_job(const Variables& variables = process_variables());

}  // namespace levin
