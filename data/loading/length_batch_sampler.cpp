#include "levin/data/loading/length_batch_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/random.h"

namespace levin {

namespace {

// So that a shuffled bucket is not permuted as the sampler permutes.
constexpr uint64_t kBucketStream = 0x6275636b;

// A small data set is not a single bucket, of all lengths.
constexpr int64_t kLeastBuckets = 16;

template <class T>
void shuffle(std::vector<T>& items, size_t first, size_t count, at::Generator& generator) {
  const at::Tensor places = at::randperm(static_cast<int64_t>(count), generator, at::TensorOptions().dtype(at::kLong));
  const int64_t* place = places.const_data_ptr<int64_t>();
  std::vector<T> shuffled;
  shuffled.reserve(count);
  for (size_t i = 0; i < count; ++i) shuffled.push_back(std::move(items[first + static_cast<size_t>(place[i])]));
  std::move(shuffled.begin(), shuffled.end(), items.begin() + static_cast<int64_t>(first));
}

void check_lengths(const std::vector<int64_t>& lengths, int64_t max_tokens) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    const std::string who = "LengthBatchSampler: sample " + std::to_string(i) + " has ";
    if (lengths[i] < 0) throw DataError(who + "length " + std::to_string(lengths[i]) + "; lengths must be >= 0.");
    if (max_tokens == 0 || lengths[i] <= max_tokens) continue;
    throw DataError(who + count_of(lengths[i], "token") + ", more than max_tokens, " + std::to_string(max_tokens) +
                    ". Set a larger max_tokens or cut the samples.");
  }
}

}  // namespace

LengthBatchSampler::LengthBatchSampler(std::shared_ptr<const Sampler> sampler, std::vector<int64_t> lengths,
                                       LengthBatchSamplerOptions options)
    : sampler_(std::move(sampler)),
      lengths_(std::move(lengths)),
      options_(checked(options, "LengthBatchSamplerOptions")) {
  if (sampler_ == nullptr) throw DataError("LengthBatchSampler: no sampler was given.");
  check_lengths(lengths_, options_.max_tokens);
  if (options_.max_tokens == 0) {
    num_batches_ = (sampler_->size() + options_.batch_size - 1) / options_.batch_size;
  } else if (sampler_->is_sequential() || (options_.bucket_by_length && sampler_->repeats_its_samples())) {
    num_batches_ = static_cast<int64_t>(batches(0, 0).size());
  }
}

std::optional<int64_t> LengthBatchSampler::batch_size() const {
  return options_.max_tokens == 0 ? std::optional(options_.batch_size) : std::nullopt;
}

std::vector<int64_t> LengthBatchSampler::visited(uint64_t seed, int64_t epoch) const {
  const at::Tensor order = sampler_->order(seed, epoch).contiguous();
  const int64_t* first = order.const_data_ptr<int64_t>();
  std::vector<int64_t> indices(first, first + order.numel());
  for (const int64_t index : indices) {
    if (index >= 0 && index < static_cast<int64_t>(lengths_.size())) continue;
    throw DataError("LengthBatchSampler: the sampler gave index " + std::to_string(index) + " but there are " +
                    count_of(lengths_.size(), "length") + ". Give a length for every sample of the data set.");
  }
  return indices;
}

IndexBatches LengthBatchSampler::batches(uint64_t seed, int64_t epoch) const {
  std::vector<int64_t> order = visited(seed, epoch);
  if (!options_.bucket_by_length) return in_order(order);
  return in_buckets(std::move(order), mix_seed(mix_seed(seed, static_cast<uint64_t>(epoch)), kBucketStream));
}

IndexBatches LengthBatchSampler::in_buckets(std::vector<int64_t> order, uint64_t seed) const {
  std::stable_sort(order.begin(), order.end(), [this](int64_t a, int64_t b) { return length(a) > length(b); });
  at::Generator generator = at::detail::createCPUGenerator(seed);
  IndexBatches batches;
  const auto samples = static_cast<int64_t>(order.size());
  for (size_t first = 0; first < order.size();) {
    const int64_t longest = std::max<int64_t>(1, length(order[first]));
    const int64_t fits = options_.max_tokens == 0 ? options_.batch_size : options_.max_tokens / longest;
    const int64_t in_bucket = std::clamp(samples / kLeastBuckets / fits, int64_t{1}, options_.bucket_batches);
    const size_t bucket = std::min(order.size() - first, static_cast<size_t>(fits * in_bucket));
    if (options_.shuffle) shuffle(order, first, bucket, generator);
    for (const size_t end = first + bucket; first < end;) {
      const size_t last = std::min(end, first + static_cast<size_t>(fits));
      batches.emplace_back(order.begin() + static_cast<int64_t>(first), order.begin() + static_cast<int64_t>(last));
      first = last;
    }
  }
  if (options_.shuffle) shuffle(batches, 0, batches.size(), generator);
  return batches;
}

IndexBatches LengthBatchSampler::in_order(const std::vector<int64_t>& order) const {
  IndexBatches batches;
  int64_t longest = 0;
  for (const int64_t index : order) {
    const auto count = batches.empty() ? 0 : static_cast<int64_t>(batches.back().size());
    longest = std::max({longest, length(index), int64_t{1}});
    const bool fits =
        options_.max_tokens == 0 ? count < options_.batch_size : longest <= options_.max_tokens / (count + 1);
    if (batches.empty() || !fits) {
      batches.emplace_back();
      longest = std::max<int64_t>(1, length(index));
    }
    batches.back().push_back(index);
  }
  return batches;
}

std::vector<int64_t> lengths_of(const Dataset& dataset) {
  std::vector<int64_t> lengths(static_cast<size_t>(dataset.size()));
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = dataset.length(static_cast<int64_t>(i));
  return lengths;
}

double share_of_padding(const IndexBatches& batches, const std::vector<int64_t>& lengths) {
  int64_t used = 0, all = 0;
  for (const auto& batch : batches) {
    int64_t longest = 0;
    for (const int64_t index : batch) {
      const int64_t length = lengths.at(static_cast<size_t>(index));
      used += length;
      longest = std::max(longest, length);
    }
    all += longest * static_cast<int64_t>(batch.size());
  }
  return all == 0 ? 0 : 1 - static_cast<double>(used) / static_cast<double>(all);
}

}  // namespace levin
