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

/// Returns everything needed to continue; with `weights_only` only the module's parameters and buffers. Its tensors
/// share the run's storage. Calls on_save_checkpoint, which may change the weights and add keys.
[[nodiscard]] State gather_checkpoint(Run& run, bool weights_only);

/// Returns the current state without the weights. Tensors are the run's own, except the random numbers.
[[nodiscard]] State run_state(Run& run);

/// Requests a file with the state of the run between this batch and the next (or before the next validation), so that
/// nothing is lost or done twice when it is resumed. on_save_checkpoint is called now.
void request_checkpoint(Run& run, CheckpointRequest request);

/// Captures the requested checkpoints; the loops call it between batches. Rethrows what a request's `done` throws.
void capture_checkpoints(Run& run);

/// Notes that the file at `path` holds everything needed to continue, so that a rollback returns to it.
void note_whole_save(Run& run, const std::string& path);

/// Throws CheckpointError if none of the requested checkpoints could be saved; otherwise reports how many are missing.
/// Every rank calls it, at the end of a fit.
void check_saves(Run& run);

/// Restores the states of the callbacks and of the data module.
void restore_callbacks(Run& run, const State& checkpoint);

/// Throws CheckpointError for a file with only weights.
void check_is_whole(const State& checkpoint, const std::string& path);

/// Restores position, counters, metrics, loggers, optimizers and schedulers. Throws CheckpointError for a file with
/// only weights.
void restore_training(Run& run, const State& checkpoint, const std::string& path);

/// Restores the random numbers that restore_training found. Called just before the first batch, so that nothing else
/// draws from them.
void restore_random_numbers(Run& run);

/// Restores only weights and optimizers from `checkpoint`; the run's position stays.
void roll_back(Run& run, const State& checkpoint, const std::string& path);

}  // namespace levin
