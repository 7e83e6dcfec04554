#include "levin/trainer/plan/auto_requeue.h"

#include <csignal>

#include "levin/core/options/error.h"
#include "levin/core/process/run_command.h"
#include "levin/core/process/this_process.h"

namespace levin {

bool is_requeued(const TrainerOptions& options, const Variables& variables) {
  const auto job = slurm_job(variables);
  return options.auto_requeue && job && job->restarts > 0;
}

bool asks_for_requeue(const TrainerOptions& options, int signal_number, const Variables& variables) {
  return options.auto_requeue && signal_number == SIGUSR1 && slurm_job(variables).has_value();
}

// Lightning does so inside the signal handler; here between two batches, because a handler may interrupt anything.
std::string requeue_job(const Variables& variables) {
  const auto job = slurm_job(variables);
  if (!job) return "Not running under Slurm.";
  const std::string refused = "Slurm does not start job " + job->id + " again: ";
  try {
    const CommandResult result = run_command({"scontrol", "requeue", job->id});
    if (result.status == 0) return "Slurm starts job " + job->id + " again, which continues from there.";
    return refused + "scontrol requeue " + job->id + " printed \"" + cut_text(result.output, 300) + "\".";
  } catch (const Error& error) {
    return refused + error.what();
  }
}

}  // namespace levin
