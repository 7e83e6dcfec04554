#include "levin/trainer/run/batch_sizing.h"

#include <string>

#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/data/loader.h"

namespace levin {

void apply_batch_size(Tuning& tuning, Loader& loader) {
  if (tuning.configured_batch_size == 0) tuning.configured_batch_size = loader.batch_size().value_or(0);
  if (tuning.batch_size == 0 || loader.batch_size() == tuning.batch_size) return;
  if (loader.set_batch_size(tuning.batch_size)) return;
  throw ConfigError(
      "BatchSizeFinder: the training loader cannot change its batch size. Override "
      "Loader::set_batch_size and Loader::batch_size, or drop the callback.");
}

int64_t batches_of(int64_t samples, int64_t ranks, const Loader& loader) {
  const std::string option = "TrainerOptions.accumulate_grad_batches.effective_batch_size: ";
  const int64_t batch = loader.batch_size().value_or(0);
  if (batch == 0) {
    throw ConfigError(option + count_of(samples, "sample") +
                      " cannot be counted, because the training loader does not tell its batch size "
                      "(Loader::batch_size). Give accumulate_grad_batches a number of batches.");
  }
  if (samples % (batch * ranks) != 0) {
    throw ConfigError(option + count_of(samples, "sample") + (samples == 1 ? " is" : " are") +
                      " not a whole number of batches of " + count_of(batch, "sample") + " on " +
                      count_of(ranks, "rank") + ". Use a multiple of " + std::to_string(batch * ranks) +
                      ", or another batch size.");
  }
  return samples / (batch * ranks);
}

}  // namespace levin
