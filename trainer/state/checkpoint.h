// Gathers and restores the state of a run. The file format is in checkpoint_file.
//
// Layout: values {levin_version, torch_version, epoch, global_step, hyper_parameters, progress, metrics, loggers.<i>,
// callbacks.<key>, optimizers.<i>, lr_schedulers.<i>, precision, data}, tensors model.<name>, optimizers.<i>.<…>,
// gradients.<name> (of an open accumulation window), rng.cpu, rng.cuda.<i>.
#pragma once

#include <string>

#include "levin/core/state.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// Everything needed to continue; with `weights_only` the module's parameters and buffers alone. Its tensors share the
/// run's storage. Calls on_save_checkpoint, which may change the weights and add keys.
[[nodiscard]] State gather_checkpoint(Run& run, bool weights_only);

/// Everything but the weights, in the current state. Tensors are the run's own, except for the random numbers.
[[nodiscard]] State run_state(Run& run);

/// Requests a file with the state of the run between this batch and the next (or before the next validation), so that
/// nothing is lost or done twice when it is resumed. on_save_checkpoint is called now.
void request_checkpoint(Run& run, CheckpointRequest request);

/// Captures the requested checkpoints; the loops call it between batches. Rethrows what a request's `done` throws.
void capture_checkpoints(Run& run);

/// At the end of a fit, every rank: throws CheckpointError if none of the requested checkpoints could be saved;
/// otherwise reports how many are missing.
void check_saves(Run& run);

/// The callbacks' states and the data module's.
void restore_callbacks(Run& run, const State& checkpoint);

/// Position, counters, metrics, loggers, optimizers and schedulers. Throws CheckpointError for a file with weights
/// only.
void restore_training(Run& run, const State& checkpoint, const std::string& path);

/// The random numbers that restore_training found; called just before the first batch, so that nothing else uses them
/// up.
void restore_random_numbers(Run& run);

/// Restores only weights and optimizers from `checkpoint`; the run's position stays.
void roll_back(Run& run, const State& checkpoint, const std::string& path);

}  // namespace levin
