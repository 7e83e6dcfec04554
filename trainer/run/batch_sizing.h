// How many samples a batch and an optimizer step have, once the loader and the number of ranks are known. Internal.
#pragma once

#include <cstdint>

namespace levin {

class Loader;
struct Run;

/// Gives the training loader the batch size that was found. Throws ConfigError if it cannot change its own.
void apply_batch_size(Run& run, Loader& loader);

/// With accumulate_grad_batches: {effective_batch_size}: how many batches of `loader` a window has. Throws ConfigError
/// naming effective size, batch size and ranks if that is no whole number, or if the loader has no batch size.
void resolve_effective_batch(Run& run, const Loader& loader);

}  // namespace levin
