// Batches of text and other sequences of unequal length, with little padding: samples of similar length together, and
// as many as fit into a number of tokens.
//
//   auto batches = std::make_shared<levin::LengthBatchSampler>(
//       std::make_shared<levin::RandomSampler>(texts->size()), levin::lengths_of(*texts),
//       levin::LengthBatchSamplerOptions{.max_tokens = 4096, .shuffle = true});
//   levin::DataLoader loader(texts, {}, batches);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/data/loading/dataset.h"
#include "levin/data/loading/sampler.h"

namespace levin {

/// Options of LengthBatchSampler.
struct LengthBatchSamplerOptions {
  int64_t max_tokens = 0;        // longest sample x samples, so padding counts; 0: batches of batch_size
  int64_t batch_size = 1;        // without max_tokens
  bool bucket_by_length = true;  // samples of similar length together; else in the sampler's order
  int64_t bucket_batches = 16;   // batches' worth of samples that are shuffled with each other, at most
  bool shuffle = false;          // the batches, and the samples of a bucket
  template <class = void>
  static auto fields() {
    using O = LengthBatchSamplerOptions;
    return levin::fields(
        field("max_tokens", &O::max_tokens, "longest sample x samples of a batch, at most; 0: batches of batch_size")
            .min(0),
        field("batch_size", &O::batch_size, "samples of a batch without max_tokens").min(1),
        field("bucket_by_length", &O::bucket_by_length,
              "samples of similar length together; else in the sampler's order"),
        field("bucket_batches", &O::bucket_batches,
              "batches' worth of samples that are shuffled with each other, at most")
            .min(1),
        field("shuffle", &O::shuffle, "the batches, and the samples of a bucket, anew for every epoch"));
  }
};

/// Batches of samples of similar length. Takes the samples of a pass from a sampler. With buckets they are sorted by
/// length (equal ones stay in the sampler's order) and cut, from the longest on, into buckets of up to `bucket_batches`
/// batches each (of small data sets fewer); a bucket is shuffled and cut into batches of as many samples as its longest
/// allows, and then all batches are shuffled. Lengths alone decide how many batches that makes, so every pass has as
/// many if it visits the same samples. Without buckets a batch ends where the next sample would not fit, and if the
/// order is random the number differs from pass to pass.
class LengthBatchSampler final : public BatchSampler {
 public:
  using Options = LengthBatchSamplerOptions;

  /// `lengths`: of every sample of the data set, in tokens. Throws DataError for a sample longer than max_tokens, or
  /// one that the sampler returns and `lengths` does not have.
  LengthBatchSampler(std::shared_ptr<const Sampler> sampler, std::vector<int64_t> lengths,
                     LengthBatchSamplerOptions options = {});

  [[nodiscard]] std::optional<int64_t> num_batches() const override { return num_batches_; }
  [[nodiscard]] IndexBatches batches(uint64_t seed, int64_t epoch) const override;
  [[nodiscard]] bool may_split() const override { return true; }
  [[nodiscard]] std::optional<int64_t> batch_size() const override;

 private:
  [[nodiscard]] std::vector<int64_t> visited(uint64_t seed, int64_t epoch) const;
  [[nodiscard]] IndexBatches in_buckets(std::vector<int64_t> order, uint64_t seed) const;
  [[nodiscard]] IndexBatches in_order(const std::vector<int64_t>& order) const;
  [[nodiscard]] int64_t length(int64_t index) const { return lengths_[static_cast<size_t>(index)]; }

  std::shared_ptr<const Sampler> sampler_;
  std::vector<int64_t> lengths_;
  LengthBatchSamplerOptions options_;
  std::optional<int64_t> num_batches_;
};

/// Returns Dataset::length of every sample.
[[nodiscard]] std::vector<int64_t> lengths_of(const Dataset& dataset);

/// Returns the fraction of the batches' tokens that would be padding if each sample were padded to its batch's longest:
/// 0 to 1.
[[nodiscard]] double share_of_padding(const IndexBatches& batches, const std::vector<int64_t>& lengths);

}  // namespace levin
