// How many samples a batch and an optimizer step have, once the loader and the number of ranks are known. Internal.
#pragma once

#include <cstdint>

#include "levin/trainer/run/tuning.h"

namespace levin {

class Loader;

/// Gives the training loader the batch size that was found. Throws ConfigError if its size cannot be changed.
void apply_batch_size(Tuning& tuning, Loader& loader);

/// How many batches of `loader` make `samples` (accumulate_grad_batches: {effective_batch_size}) on `world_size` ranks.
/// Throws ConfigError naming samples, batch size and ranks if that is not a whole number, or if the loader has no batch
/// size.
[[nodiscard]] int64_t batches_of(int64_t samples, int64_t ranks, const Loader& loader);

}  // namespace levin
