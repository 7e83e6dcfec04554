// Batches and splits in which every class has the share that it has in the data. Counts are by largest remainders.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/data/loading/sampler.h"

namespace levin {

/// Throws DataError unless `labels` is (n) int64 of numbers from 0 on: a class for each sample.
void check_labels(const at::Tensor& labels);

/// Divides `total` in proportion to `counts`: exact fractions rounded down, and one more for the counts with the
/// largest remainders, at equal remainders the first. None gets more than its count if total is at most their sum.
[[nodiscard]] std::vector<int64_t> largest_remainders(const std::vector<int64_t>& counts, int64_t total);

/// Options of StratifiedBatchSampler.
struct StratifiedBatchSamplerOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last = false;
  template <class = void>
  static auto fields() {
    using O = StratifiedBatchSamplerOptions;
    return levin::fields(
        field("batch_size", &O::batch_size, "samples of a batch").min(1),
        field("shuffle", &O::shuffle, "the samples of each class, and the batches, anew for every epoch"),
        field("drop_last", &O::drop_last, "leave out an incomplete batch"));
  }
};

/// Batches that each have the classes in the proportions of the samples that the batches before have left, and together
/// every sample once in a pass. So a class has at most one sample more or less than its exact share of a batch. Throws
/// DataError for invalid labels.
class StratifiedBatchSampler final : public BatchSampler {
 public:
  using Options = StratifiedBatchSamplerOptions;

  /// `labels`: (n) int64, the class of every sample of the data set. `rows`: (m) int64, the samples to visit;
  /// undefined: all.
  explicit StratifiedBatchSampler(const at::Tensor& labels, StratifiedBatchSamplerOptions options = {},
                                  const at::Tensor& rows = {});

  [[nodiscard]] std::optional<int64_t> num_batches() const override;
  [[nodiscard]] IndexBatches batches(uint64_t seed, int64_t epoch) const override;
  [[nodiscard]] std::optional<int64_t> batch_size() const override { return options_.batch_size; }

 private:
  StratifiedBatchSamplerOptions options_;
  IndexBatches of_class_;  // the samples of each class
  int64_t samples_;
};

/// The rows of a data set for training and held out.
struct Split {
  at::Tensor train = {};  // (n - held_out) int64
  at::Tensor held_out = {};
};

/// Holds out `count` of `size` samples, chosen by `seed`. With `labels` ((size) int64) the classes have the same
/// proportions in both parts. Both parts are in a random order, or with `in_order` in the order of the data.
[[nodiscard]] Split random_split(int64_t size, int64_t count, uint64_t seed, const at::Tensor& labels = {},
                                 bool in_order = false);

}  // namespace levin
