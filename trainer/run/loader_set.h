// The loaders of a run: obtained from the data module or the module, limited, and their batches moved to the device.
#pragma once

#include <cstdint>

#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/run/tuning.h"

namespace levin {

class AccumulationSchedule;
class Loader;

/// Returns whether validation will take place: the module or data module may have validation loaders, and their limit
/// is not 0.
[[nodiscard]] bool has_validation_hooks(const RunPlan& plan, const EntryPoint& entry);

/// Obtains the training loader. Throws ConfigError if there is none, or its limit leaves no batch.
void load_train_loader(Run& run);

/// Obtains the evaluation loaders. `stage`: validate, test or predict. Throws NoLoaderError if there is none, except
/// for validation in fit.
void load_eval_loaders(Run& run, Stage stage);

/// Gives each rank its share of the samples, unless use_distributed_sampler is false. `padded`: all ranks get the same
/// number, for training; otherwise every sample counts once. Logs a warning if the loader cannot be split.
void share_out(Run& run, Loader& loader, bool padded);

/// Lets `stream` copy its batches to the device one ahead, if the device supports it and no hook of the module or data
/// module needs them on the CPU.
void copy_ahead(Run& run, BatchStream& stream);

/// Returns the batch on the device, in the precision's dtype, after the transfer hooks.
[[nodiscard]] Batch transfer_batch(Run& run, Batch batch, int64_t dataloader_idx);

/// Returns a training batch after the callbacks that change batches.
[[nodiscard]] Batch change_batch(Run& run, Batch batch);

/// Returns the batches of an epoch; kUnlimited if the loader does not know, 0 before it is created.
[[nodiscard]] int64_t num_training_batches(const Fit& fit);
/// Returns the callback that decides how many batches an optimizer step takes; null: the same number in every epoch.
[[nodiscard]] const AccumulationSchedule* accumulation_schedule(const Run& run);

/// Returns the number of accumulation windows for this many batches; the last one may be smaller.
[[nodiscard]] inline int64_t windows_in(int64_t batches, int64_t accumulate) {
  return batches / accumulate + (batches % accumulate == 0 ? 0 : 1);
}

// The samples of a batch and of an optimizer step, once the loader and the number of ranks are known.

/// Gives the training loader the batch size that was found. Throws ConfigError if its size cannot be changed.
void apply_batch_size(Tuning& tuning, Loader& loader);

/// Returns how many batches of `loader` make `samples` (accumulate_grad_batches: {effective_batch_size}) on `ranks`
/// ranks. Throws ConfigError naming samples, batch size and ranks if that is not a whole number, or if the loader has
/// no batch size.
[[nodiscard]] int64_t batches_of(int64_t samples, int64_t ranks, const Loader& loader);

}  // namespace levin
