#include "levin/data/loading/stratified.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "support/error_text.h"

namespace levin::stratified_test {
namespace {

using test::error_of;
using test::holds;

// Classes of very unequal size: number k has about 1 / 2^k of the samples.
at::Tensor uneven_labels(int64_t count, uint64_t seed) {
  const at::Tensor drawn = at::randint(1, 64, {count}, at::detail::createCPUGenerator(seed), at::kDouble);
  return drawn.log2().floor().to(at::kLong).neg().add(5);
}

std::vector<int64_t> counts_of(const std::vector<int64_t>& rows, const at::Tensor& labels, int64_t classes) {
  std::vector<int64_t> counts(static_cast<size_t>(classes), 0);
  for (const int64_t row : rows) ++counts[static_cast<size_t>(labels[row].item<int64_t>())];
  return counts;
}

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor own = tensor.contiguous();
  return {own.const_data_ptr<int64_t>(), own.const_data_ptr<int64_t>() + own.numel()};
}

// Shares that come out even, and quotas of 43.4, 42.3 and 14.3, of which the first has the largest remainder.
TEST(LargestRemainders, GivesExactSharesAndTheRestToTheLargestRemainders) {
  EXPECT_EQ(largest_remainders({50, 30, 20}, 10), (std::vector<int64_t>{5, 3, 2}));
  EXPECT_EQ(largest_remainders({434, 423, 143}, 100), (std::vector<int64_t>{44, 42, 14}));
  EXPECT_EQ(largest_remainders({1, 1, 1}, 2), (std::vector<int64_t>{1, 1, 0}));
  EXPECT_EQ(largest_remainders({0, 7}, 7), (std::vector<int64_t>{0, 7}));
  EXPECT_EQ(largest_remainders({0, 0}, 0), (std::vector<int64_t>{0, 0}));
}

TEST(StratifiedBatchSampler, GivesEveryBatchTheClassesInTheirProportions) {
  for (const uint64_t seed : {1, 2, 3}) {
    const at::Tensor labels = uneven_labels(997, seed);
    const std::vector<int64_t> all = counts_of(numbers(at::arange(997)), labels, 6);
    for (const int64_t batch_size : {4, 32, 100}) {
      const StratifiedBatchSampler sampler(labels, {.batch_size = batch_size, .shuffle = true});
      const IndexBatches batches = sampler.batches(seed, 0);
      EXPECT_EQ(static_cast<int64_t>(batches.size()), *sampler.num_batches());
      std::set<int64_t> seen;
      for (const auto& batch : batches) {
        seen.insert(batch.begin(), batch.end());
        const std::vector<int64_t> counts = counts_of(batch, labels, 6);
        for (size_t c = 0; c < counts.size(); ++c) {
          const double exact = static_cast<double>(all[c]) * static_cast<double>(batch.size()) / 997;
          EXPECT_LE(std::abs(static_cast<double>(counts[c]) - exact), 1.0 + 1e-9) << "class " << c;
        }
      }
      EXPECT_EQ(seen.size(), 997U);
    }
  }
}

TEST(StratifiedBatchSampler, ShufflesByEpochAndVisitsOnlyItsRows) {
  const at::Tensor labels = uneven_labels(200, 1);
  const at::Tensor rows = at::arange(50, 150);
  const StratifiedBatchSampler sampler(labels, {.batch_size = 8, .shuffle = true, .drop_last = true}, rows);
  EXPECT_EQ(sampler.num_batches(), 12);
  const IndexBatches batches = sampler.batches(1, 0);
  EXPECT_EQ(batches,
            StratifiedBatchSampler(labels, {.batch_size = 8, .shuffle = true, .drop_last = true}, rows).batches(1, 0));
  EXPECT_NE(batches, sampler.batches(1, 1));
  for (const auto& batch : batches) {
    EXPECT_EQ(batch.size(), 8U);
    for (const int64_t row : batch) EXPECT_TRUE(row >= 50 && row < 150);
  }
  const StratifiedBatchSampler in_order(labels, {.batch_size = 8});
  EXPECT_EQ(in_order.batches(1, 0), in_order.batches(2, 5));
}

TEST(StratifiedBatchSampler, GivesRanksDisjointBatches) {
  const at::Tensor labels = uneven_labels(96, 1);
  const auto data = std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(96)});
  std::multiset<int64_t> seen;
  for (int64_t rank = 0; rank < 3; ++rank) {
    const StratifiedBatchSamplerOptions options{.batch_size = 8, .shuffle = true};
    DataLoader loader(data, {}, std::make_shared<StratifiedBatchSampler>(labels, options));
    loader.shard(rank, 3, /*padded=*/true);
    EXPECT_EQ(loader.num_batches(), 4);
    EXPECT_EQ(loader.batch_size(), 8);
    loader.start(2);
    for (Batch batch; loader.next(batch);) {
      for (const int64_t row : numbers(batch[0])) seen.insert(row);
    }
  }
  EXPECT_EQ(seen.size(), 96U);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 96U);
}

TEST(RandomSplit, HoldsOutRowsOnceInTheClassesProportions) {
  const at::Tensor labels = uneven_labels(500, 4);
  const Split split = random_split(500, 60, 42, labels);
  const auto together = std::get<0>(at::cat({split.train, split.held_out}).sort());
  EXPECT_TRUE(at::equal(together, at::arange(500)));
  const auto all = counts_of(numbers(at::arange(500)), labels, 6);
  EXPECT_EQ(counts_of(numbers(split.held_out), labels, 6), largest_remainders(all, 60));
  EXPECT_TRUE(at::equal(split.held_out, random_split(500, 60, 42, labels).held_out));
  EXPECT_FALSE(at::equal(split.held_out, random_split(500, 60, 43, labels).held_out));
  const Split plain = random_split(500, 60, 42);
  EXPECT_EQ(plain.train.numel(), 440);
  EXPECT_EQ(plain.held_out.numel(), 60);
}

TEST(StratifiedBatchSampler, ReportsThatItNeedsClasses) {
  EXPECT_TRUE(holds(error_of<DataError>([] { StratifiedBatchSampler(at::tensor({0.5, 1.5})); }), {"int64", "classes"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { StratifiedBatchSampler(at::arange(3), {.batch_size = 0}); }),
                    {"StratifiedBatchSamplerOptions.batch_size", "got 0"}));
}

}  // namespace
}  // namespace levin::stratified_test
