#include "levin/data/loading/length_batch_sampler.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "support/error_text.h"

namespace levin::length_batch_sampler_test {
namespace {

using test::error_of;
using test::holds;

// 1 to 50 tokens, the short ones more often.
std::vector<int64_t> lengths_like_texts(int64_t count) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) lengths.push_back(1 + (i * i * 7919) % 50 * ((i * 31) % 50) / 50);
  return lengths;
}

std::shared_ptr<Sampler> random_order(int64_t size) {
  return std::make_shared<RandomSampler>(size);
}

int64_t tokens_of(const std::vector<int64_t>& batch, const std::vector<int64_t>& lengths) {
  int64_t longest = 0;
  for (const int64_t index : batch) longest = std::max(longest, lengths[static_cast<size_t>(index)]);
  return longest * static_cast<int64_t>(batch.size());
}

std::multiset<int64_t> members(const IndexBatches& batches) {
  std::multiset<int64_t> all;
  for (const auto& batch : batches) all.insert(batch.begin(), batch.end());
  return all;
}

std::multiset<int64_t> each_once(int64_t size) {
  std::multiset<int64_t> all;
  for (int64_t i = 0; i < size; ++i) all.insert(i);
  return all;
}

TEST(LengthBatchSampler, FillsBatchesUpToMaxTokensWithPadding) {
  const auto lengths = lengths_like_texts(2000);
  for (const bool bucket : {true, false}) {
    for (const int64_t max_tokens : {50, 200, 1000}) {
      const LengthBatchSampler sampler(random_order(2000), lengths,
                                       {.max_tokens = max_tokens, .bucket_by_length = bucket, .shuffle = true});
      for (const int64_t epoch : {0, 1}) {
        const IndexBatches batches = sampler.batches(5, epoch);
        EXPECT_EQ(members(batches), each_once(2000));
        for (const auto& batch : batches) EXPECT_LE(tokens_of(batch, lengths), max_tokens);
      }
    }
  }
}

TEST(LengthBatchSampler, HasTheSameNumberOfBatchesInEveryPassAndDeclaresIt) {
  const LengthBatchSampler sampler(random_order(2000), lengths_like_texts(2000),
                                   {.max_tokens = 200, .bucket_by_length = true, .shuffle = true});
  ASSERT_TRUE(sampler.num_batches().has_value());
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    EXPECT_EQ(static_cast<int64_t>(sampler.batches(epoch * 77, epoch).size()), *sampler.num_batches());
  }
}

TEST(LengthBatchSampler, ReportsThatTheNumberDiffersWhereTheOrderDecides) {
  const auto lengths = lengths_like_texts(500);
  const LengthBatchSampler in_order(random_order(500), lengths, {.max_tokens = 200, .bucket_by_length = false});
  EXPECT_EQ(in_order.num_batches(), std::nullopt);
  std::set<size_t> counts;
  for (int64_t epoch = 0; epoch < 20; ++epoch) counts.insert(in_order.batches(1, epoch).size());
  EXPECT_GT(counts.size(), 1U);
  const auto drawn = std::make_shared<RandomSampler>(500, RandomSamplerOptions{.replacement = true});
  EXPECT_EQ(LengthBatchSampler(drawn, lengths, {.max_tokens = 200}).num_batches(), std::nullopt);
  const LengthBatchSampler of_eight(drawn, lengths, {.batch_size = 8});
  EXPECT_EQ(of_eight.num_batches(), 63);
  EXPECT_EQ(of_eight.batches(1, 0).size(), 63U);
  EXPECT_EQ(of_eight.batch_size(), 8);
}

TEST(LengthBatchSampler, BucketsLeaveLittlePadding) {
  const auto lengths = lengths_like_texts(5000);
  const auto padding = [&](bool bucket) {
    const LengthBatchSampler sampler(random_order(5000), lengths,
                                     {.max_tokens = 400, .bucket_by_length = bucket, .shuffle = true});
    return share_of_padding(sampler.batches(0, 0), lengths);
  };
  EXPECT_GT(padding(false), 0.5);
  EXPECT_LT(padding(true), 0.12);
}

// The closed form: 2 batches of (3, 1) leave 2 of 6 numbers as padding, one of equal lengths none.
TEST(LengthBatchSampler, MeasuresPaddingAsTheShareOfAllNumbers) {
  EXPECT_DOUBLE_EQ(share_of_padding({{0, 1}, {2, 3}}, {3, 1, 2, 2}), 0.2);
  EXPECT_DOUBLE_EQ(share_of_padding({{0, 1}}, {3, 1}), 2.0 / 6);
  EXPECT_DOUBLE_EQ(share_of_padding({{2, 3}}, {3, 1, 2, 2}), 0);
  EXPECT_DOUBLE_EQ(share_of_padding({}, {}), 0);
}

TEST(LengthBatchSampler, ShufflesBatchesAndTheirCompositionByEpochAndSeedOnly) {
  const auto lengths = lengths_like_texts(1000);
  const LengthBatchSampler sampler(random_order(1000), lengths, {.max_tokens = 200, .shuffle = true});
  const LengthBatchSampler again(random_order(1000), lengths, {.max_tokens = 200, .shuffle = true});
  const IndexBatches first = sampler.batches(1, 0);
  EXPECT_EQ(first, again.batches(1, 0));
  EXPECT_NE(first, sampler.batches(1, 1));
  EXPECT_NE(first, sampler.batches(2, 0));
  // Batches differ in their samples, not only in their order.
  const auto sets = [](const IndexBatches& batches) {
    std::set<std::set<int64_t>> all;
    for (const auto& batch : batches) {
      if (batch.size() > 1) all.emplace(batch.begin(), batch.end());
    }
    return all;
  };
  const auto one = sets(first), other = sets(sampler.batches(1, 1));
  std::vector<std::set<int64_t>> common;
  std::set_intersection(one.begin(), one.end(), other.begin(), other.end(), std::back_inserter(common));
  EXPECT_LT(common.size(), one.size() / 10);
  // Long and short batches come in no order: both halves of the epoch have the same mean length.
  double halves[2] = {0, 0};
  for (size_t b = 0; b < first.size(); ++b) {
    halves[b * 2 / first.size()] += static_cast<double>(lengths[static_cast<size_t>(first[b][0])]);
  }
  EXPECT_NEAR(halves[0] / halves[1], 1, 0.35);
}

TEST(LengthBatchSampler, KeepsTheSamplersOrderWithoutBucketsAndSortsWithThem) {
  const auto sequential = std::make_shared<SequentialSampler>(6);
  const std::vector<int64_t> lengths = {2, 5, 1, 1, 4, 3};
  const LengthBatchSampler in_order(sequential, lengths, {.max_tokens = 8, .bucket_by_length = false});
  EXPECT_EQ(in_order.batches(0, 0), (IndexBatches{{0}, {1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(in_order.num_batches(), 4);
  const LengthBatchSampler sorted(sequential, lengths, {.max_tokens = 8, .bucket_batches = 1});
  EXPECT_EQ(sorted.batches(0, 0), (IndexBatches{{1}, {4, 5}, {0, 2, 3}}));
}

TEST(LengthBatchSampler, GivesRanksDisjointSamplesAndEquallyManyBatches) {
  for (const int64_t world : {2, 3, 7}) {
    const LengthBatchSampler sampler(random_order(300), lengths_like_texts(300), {.max_tokens = 100, .shuffle = true});
    std::multiset<int64_t> seen;
    std::set<size_t> counts;
    for (int64_t rank = 0; rank < world; ++rank) {
      const IndexBatches share = share_of_batches(sampler.batches(4, 2), rank, world, true, sampler.may_split());
      counts.insert(share.size());
      seen.merge(members(share));
    }
    EXPECT_EQ(counts.size(), 1U);
    EXPECT_EQ(seen, each_once(300)) << world;
  }
}

TEST(LengthBatchSampler, NamesTheSampleThatDoesNotFit) {
  EXPECT_TRUE(holds(error_of<DataError>([] {
                      LengthBatchSampler(random_order(3), {2, 9, 1}, {.max_tokens = 8});
                    }),
                    {"sample 1", "9 tokens", "max_tokens, 8"}));
  EXPECT_TRUE(holds(error_of<DataError>([] { LengthBatchSampler(random_order(3), {2, -1, 1}); }), {"sample 1", "-1"}));
  EXPECT_TRUE(holds(error_of<DataError>([] {
                      (void)LengthBatchSampler(random_order(3), {2, 1}).batches(0, 0);
                    }),
                    {"index 2", "2 lengths"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { LengthBatchSampler(random_order(1), {2}, {.max_tokens = -1}); }),
                    {"LengthBatchSamplerOptions.max_tokens", "got -1"}));
}

// Rows of as many ones as their index says.
class Rows final : public Dataset {
 public:
  int64_t size() const override { return 40; }
  Batch get(int64_t index) const override { return {at::zeros({length(index)}).add_(1)}; }
  int64_t length(int64_t index) const override { return 1 + index % 10; }
};

Batch pad(std::vector<Batch> samples) {
  int64_t width = 0;
  for (const auto& sample : samples) width = std::max(width, sample[0].size(0));
  at::Tensor x = at::zeros({static_cast<int64_t>(samples.size()), width});
  for (size_t i = 0; i < samples.size(); ++i) {
    x.select(0, static_cast<int64_t>(i)).narrow(0, 0, samples[i][0].size(0)).copy_(samples[i][0]);
  }
  return Batch{x};
}

TEST(DataLoader, MakesBatchesByLengthFromItsOptions) {
  DataLoader loader(std::make_shared<Rows>(), {.shuffle = true, .max_tokens = 20, .bucket_by_length = true}, nullptr,
                    pad);
  double ones = 0;
  int64_t batches = 0;
  loader.start(0);
  for (Batch batch; loader.next(batch); ++batches) {
    EXPECT_LE(batch[0].numel(), 20);
    ones += batch[0].sum().item<double>();
  }
  EXPECT_EQ(ones, 220);
  EXPECT_EQ(loader.num_batches(), batches);
  DataLoader of_four(std::make_shared<Rows>(), {.batch_size = 4, .bucket_by_length = true}, nullptr, pad);
  EXPECT_EQ(of_four.num_batches(), 10);
  EXPECT_EQ(of_four.batch_size(), 4);
}

TEST(DataLoader, KeepsOneOrderOfBatchesByLengthWhenOverfitting) {
  DataLoader loader(std::make_shared<Rows>(), {.batch_size = 4, .shuffle = true, .bucket_by_length = true}, nullptr,
                    pad);
  const auto widths = [&](int64_t epoch) {
    std::vector<int64_t> of_batches;
    loader.start(epoch);
    for (Batch batch; loader.next(batch);) of_batches.push_back(batch[0].size(1));
    return of_batches;
  };
  EXPECT_NE(widths(3), widths(4));
  loader.use_sequential_order();
  EXPECT_EQ(widths(3), widths(4));
}

TEST(DataLoader, RefusesBatchesByLengthThatCannotBe) {
  const auto numbers = std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(4)});
  EXPECT_TRUE(holds(error_of<DataError>([&] { DataLoader(numbers, {.max_tokens = 8}); }),
                    {"does not know the lengths", "Override length()"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] {
                      DataLoader(std::make_shared<Rows>(), {.max_tokens = 8}, std::make_shared<SequentialSampler>(3));
                    }),
                    {"max_tokens", "LengthBatchSampler"}));
  EXPECT_TRUE(holds(error_of<ConfigError>(
                        [] { DataLoader(std::make_shared<Rows>(), {.drop_last = true, .bucket_by_length = true}); }),
                    {"drop_last", "bucket_by_length"}));
}

}  // namespace
}  // namespace levin::length_batch_sampler_test
