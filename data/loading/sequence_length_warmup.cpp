#include "levin/data/loading/sequence_length_warmup.h"

#include <algorithm>
#include <string>
#include <utility>

#include "levin/core/options/error.h"

namespace levin {

int64_t warmup_length(const SequenceLengthWarmupOptions& options, int64_t full, int64_t batch) {
  if (batch >= options.batches) return full;
  const int64_t length = options.start_length + (full - options.start_length) * batch / options.batches;
  return std::max(options.start_length, length / options.multiple_of * options.multiple_of);
}

namespace {

std::shared_ptr<Loader> checked_loader(std::shared_ptr<Loader> loader) {
  if (loader != nullptr && loader->num_batches()) return loader;
  throw ConfigError("SequenceLengthWarmup: needs a loader that knows its number of batches.");
}

}  // namespace

SequenceLengthWarmup::SequenceLengthWarmup(std::shared_ptr<Loader> loader, int64_t full_length,
                                           SequenceLengthWarmupOptions options)
    : WrappedLoader(checked_loader(std::move(loader))),
      full_length_(full_length),
      options_(checked(options, "SequenceLengthWarmupOptions")) {
  if (options_.start_length > full_length) {
    throw ConfigError("SequenceLengthWarmupOptions.start_length: must be at most the full length, " +
                      std::to_string(full_length) + ", got " + std::to_string(options_.start_length) + ".");
  }
}

void SequenceLengthWarmup::start(int64_t epoch, int64_t first_batch) {
  WrappedLoader::start(epoch, first_batch);
  batch_ = epoch * *num_batches() + first_batch;
}

bool SequenceLengthWarmup::next(Batch& batch) {
  if (!WrappedLoader::next(batch)) return false;
  const int64_t length = warmup_length(options_, full_length_, batch_++);
  for (at::Tensor& tensor : batch.tensors) {
    if (tensor.dim() >= 2 && tensor.size(1) == full_length_) tensor = tensor.narrow(1, 0, length);
  }
  return true;
}

ConfigNode SequenceLengthWarmup::written_options() const {
  ConfigNode node = write_options(options_);
  node.set("loader", WrappedLoader::written_options());
  return node;
}

}  // namespace levin
