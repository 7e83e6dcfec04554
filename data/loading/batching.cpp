#include "levin/data/loading/batching.h"

#include <ATen/ops/zeros_like.h>

#include <string>

#include "levin/core/options/error.h"
#include "levin/data/loading/length_batch_sampler.h"
#include "levin/data/loading/stratified.h"
#include "levin/data/loading/weighted_sampler.h"

namespace levin {

namespace {

std::shared_ptr<Sampler> sampler_of(const SampleSet& samples, bool shuffle, SampleWeights weights) {
  const int64_t all = samples.dataset->size();
  if (weights == SampleWeights::balanced) {
    check_labels(samples.labels);
    if (!samples.rows.defined()) {
      return std::make_shared<WeightedRandomSampler>(balanced_weights(samples.labels), all);
    }
    const at::Tensor own = balanced_weights(samples.labels.index_select(0, samples.rows));
    const at::Tensor drawn = at::zeros_like(samples.labels, at::kDouble).index_copy_(0, samples.rows, own);
    return std::make_shared<WeightedRandomSampler>(drawn, samples.rows.numel());
  }
  if (samples.rows.defined()) return std::make_shared<SubsetSampler>(samples.rows, shuffle);
  if (shuffle) return std::make_shared<RandomSampler>(all);
  return std::make_shared<SequentialSampler>(all);
}

}  // namespace

void check_batching(const BatchingOptions& batching, const std::string& path, bool drop_last) {
  if (drop_last && batching.by_length()) {
    throw ConfigError(path + (batching.max_tokens > 0 ? ".max_tokens" : ".bucket_by_length") +
                      ": must be unset with drop_last, because batches by length differ in their numbers of samples.");
  }
  if (!batching.stratified) return;
  const std::string rule = ": must be unset with stratified, whose batches hold each sample once and by class.";
  if (batching.weights != SampleWeights::none) throw ConfigError(path + ".weights" + rule);
  if (batching.bucket_by_length) throw ConfigError(path + ".bucket_by_length" + rule);
  if (batching.max_tokens > 0) throw ConfigError(path + ".max_tokens" + rule);
}

std::shared_ptr<DataLoader> batched_loader(const SampleSet& samples, const DataLoaderOptions& options,
                                           const BatchingOptions& batching) {
  DataLoaderOptions rest = options;  // what a batch sampler does not decide
  rest.batch_size = 1;
  rest.shuffle = rest.drop_last = false;
  if (batching.stratified) {
    const StratifiedBatchSamplerOptions by_class{
        .batch_size = options.batch_size, .shuffle = options.shuffle, .drop_last = options.drop_last};
    return std::make_shared<DataLoader>(
        samples.dataset, rest, std::make_shared<StratifiedBatchSampler>(samples.labels, by_class, samples.rows));
  }
  if (batching.by_length()) {
    const LengthBatchSamplerOptions by_length{.max_tokens = batching.max_tokens,
                                              .batch_size = options.batch_size,
                                              .bucket_by_length = batching.bucket_by_length,
                                              .shuffle = options.shuffle};
    return std::make_shared<DataLoader>(
        samples.dataset, rest,
        std::make_shared<LengthBatchSampler>(sampler_of(samples, options.shuffle, batching.weights),
                                             lengths_of(*samples.dataset), by_length));
  }
  if (!samples.rows.defined() && batching.weights == SampleWeights::none) {
    return std::make_shared<DataLoader>(samples.dataset, options);
  }
  DataLoaderOptions in_order = options;
  in_order.shuffle = false;
  return std::make_shared<DataLoader>(samples.dataset, in_order,
                                      sampler_of(samples, options.shuffle, batching.weights));
}

}  // namespace levin
