// How many samples an optimizer step takes, once the loader and the number of ranks are known, and what that means for
// the learning rates. Internal.
#pragma once

#include <cstdint>

namespace levin {

class Loader;
class OptimizerConfig;
struct Run;

/// What was found out before a fit in place of what the user wrote (BatchSizeFinder, LearningRateFinder).
struct Tuning {
  int64_t batch_size = 0;             // of each rank; 0: the loader's own
  int64_t configured_batch_size = 0;  // the loader's own; 0: not known
  double lr_factor = 1;               // of every group's learning rate
};

/// Gives the training loader the batch size that was found. Throws ConfigError if it cannot change its own.
void apply_batch_size(Run& run, Loader& loader);

/// With accumulate_grad_batches: {effective_batch_size}: how many batches of `loader` a window has. Throws ConfigError
/// naming effective size, batch size and ranks if that is no whole number, or if the loader has no batch size.
void resolve_effective_batch(Run& run, const Loader& loader);

/// TrainerOptions::lr_scale and what LearningRateFinder found: learning rates of all groups, before any scheduler takes
/// them for its own. Throws ConfigError for a scheduler whose learning rates are in its own options.
void scale_learning_rates(Run& run, const OptimizerConfig& config);

}  // namespace levin
