// Which weights a command that trains nothing uses, and what it says about them.
#pragma once

#include <string>

#include "levin/cli/config/run_config.h"
#include "levin/trainer/trainer_options.h"

namespace levin {

class Trainer;

/// Returns the ckpt_path of a command that hands over what the weights compute, or the weights: the run file's, else
/// the best checkpoint, if there is one, where a checkpoint callback of the run file monitors a metric.
[[nodiscard]] std::string checkpoint_to_use(const RunConfig& config, const TrainerOptions& options);

/// Prints the checkpoint, file or folder from which the trainer's last entry point took the weights. Warns if it used
/// the initial weights without a request for them.
void report_weights(const std::string& command, const Trainer& trainer, const RunConfig& config);

}  // namespace levin
