// Gathers the state of a run and puts it back. The file format is checkpoint_file's matter.
//
// Layout: values {levin_version, epoch, global_step, progress, hyper_parameters, callbacks.<key>, optimizers.<i>,
// lr_schedulers.<i>}, tensors model.<name>, optimizers.<i>.<…>, rng.cpu.
#pragma once

#include <string>

#include "levin/core/state.h"
#include "levin/trainer/run.h"

namespace levin {

/// Everything needed to continue; `weights_only`: the module's parameters and buffers alone.
[[nodiscard]] State gather_checkpoint(Run& run, bool weights_only);

/// Copies the module's parameters and buffers. Throws CheckpointError listing every name that is missing, unexpected or
/// of another shape.
void restore_weights(LightningModule& module, const State& checkpoint, const std::string& path);

/// The callbacks' states and the data module's.
void restore_callbacks(Run& run, const State& checkpoint);

/// Counters, optimizers, schedulers and random numbers. Throws CheckpointError for a file with weights only.
void restore_training(Run& run, const State& checkpoint, const std::string& path);

/// The file that "best", "last" or a path stands for; "" for "" (start fresh) and, with a warning, for a "last" that is
/// not there. Throws CheckpointError where there is none.
[[nodiscard]] std::string resolve_ckpt_path(Run& run, const std::string& ckpt_path);

}  // namespace levin
