// The loaders of a run: asked for from the data module or the module, limited, and their batches brought to the device.
#pragma once

#include "levin/trainer/batch_stream.h"
#include "levin/trainer/run.h"

namespace levin {

/// Whether validation will take place: the module or data module may have validation loaders and none is limited to 0.
[[nodiscard]] bool has_validation_hooks(const Run& run);

/// Throws ConfigError if there is no training loader or nothing is left of it.
void load_train_loader(Run& run);

/// `stage`: validate, test or predict. In fit an absent validation loader is fine; else ConfigError.
void load_eval_loaders(Run& run, Stage stage);

/// Lets `stream` copy its batches to the device one ahead, if the device can and no hook of the module or data module
/// wants to see them before they are there.
void copy_ahead(Run& run, BatchStream& stream);

/// The transfer hooks around the copy to the device and the conversion to the precision's dtype.
[[nodiscard]] Batch transfer_batch(Run& run, Batch batch, int64_t dataloader_idx);

}  // namespace levin
