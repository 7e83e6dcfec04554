#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/sampler.h"
#include "support/error_text.h"

namespace levin::batch_sampler_test {
namespace {

using test::error_of;
using test::holds;

// A user-defined sampler: batches of 1, 2, 3, … samples, in a different order for every (seed, epoch).
class Growing final : public BatchSampler {
 public:
  explicit Growing(int64_t batches, bool may_split = false) : batches_(batches), may_split_(may_split) {}
  std::optional<int64_t> num_batches() const override { return batches_; }
  bool may_split() const override { return may_split_; }
  IndexBatches batches(uint64_t seed, int64_t epoch) const override {
    const at::Tensor order = RandomSampler(batches_ * (batches_ + 1) / 2).order(seed, epoch);
    const int64_t* next = order.const_data_ptr<int64_t>();
    IndexBatches all;
    for (int64_t b = 1; b <= batches_; ++b, next += b - 1) all.emplace_back(next, next + b);
    return all;
  }

 private:
  int64_t batches_;
  bool may_split_;
};

class Fixed final : public BatchSampler {
 public:
  Fixed(IndexBatches list, std::optional<int64_t> says) : list_(std::move(list)), says_(says) {}
  std::optional<int64_t> num_batches() const override { return says_; }
  IndexBatches batches(uint64_t, int64_t) const override { return list_; }

 private:
  IndexBatches list_;
  std::optional<int64_t> says_;
};

std::shared_ptr<TensorDataset> counting(int64_t size) {
  return std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(size)});
}

IndexBatches pass(Loader& loader, int64_t epoch, int64_t first_batch = 0) {
  loader.start(epoch, first_batch);
  IndexBatches batches;
  for (Batch batch; loader.next(batch);) {
    const int64_t* first = batch[0].const_data_ptr<int64_t>();
    batches.emplace_back(first, first + batch[0].numel());
  }
  return batches;
}

std::multiset<int64_t> members(const IndexBatches& batches) {
  std::multiset<int64_t> all;
  for (const auto& batch : batches) all.insert(batch.begin(), batch.end());
  return all;
}

TEST(BatchSampler, GivesItsListsOfIndicesAsBatchesForAnyNumberOfWorkers) {
  const auto sampler = std::make_shared<Growing>(7);
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(counting(28), {.num_workers = workers, .seed = 3}, sampler);
    EXPECT_EQ(loader.num_batches(), 7);
    EXPECT_EQ(loader.batch_size(), std::nullopt);
    for (const int64_t epoch : {0, 1}) EXPECT_EQ(pass(loader, epoch), sampler->batches(3, epoch)) << workers;
  }
}

TEST(BatchSampler, ContinuesInsideAPassWithTheSameBatches) {
  DataLoader loader(counting(28), {.num_workers = 1}, std::make_shared<Growing>(7));
  const IndexBatches whole = pass(loader, 5);
  for (int64_t first = 0; first <= 7; ++first) {
    EXPECT_EQ(pass(loader, 5, first), IndexBatches(whole.begin() + first, whole.end())) << first;
  }
  EXPECT_TRUE(holds(error_of<DataError>([&] { loader.start(5, 8); }), {"batch 8", "7 batches"}));
}

TEST(BatchSampler, CollatesSamplesOfItsBatches) {
  const Collate count = [](std::vector<Batch> samples) {
    return Batch{at::arange(static_cast<int64_t>(samples.size()))};
  };
  DataLoader loader(counting(6), {}, std::make_shared<Growing>(3), count);
  EXPECT_EQ(pass(loader, 0), (IndexBatches{{0}, {0, 1}, {0, 1, 2}}));
}

TEST(BatchSampler, GivesAllRanksEquallyManyBatchesInTraining) {
  for (const bool may_split : {false, true}) {
    const auto sampler = std::make_shared<Growing>(7, may_split);
    IndexBatches all;
    for (int64_t rank = 0; rank < 3; ++rank) {
      DataLoader loader(counting(28), {.seed = 3}, sampler);
      ASSERT_TRUE(loader.shard(rank, 3, /*padded=*/true));
      const IndexBatches share = pass(loader, 0);
      EXPECT_EQ(share.size(), 3U);
      EXPECT_EQ(loader.num_batches(), 3);
      all.insert(all.end(), share.begin(), share.end());
    }
    const auto seen = members(all);
    EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 28U);
    // Split: each sample once. Whole: the first two batches, of one and two samples, twice.
    EXPECT_EQ(seen.size(), may_split ? 28U : 31U);
    if (!may_split) {
      EXPECT_EQ(all[2], sampler->batches(3, 0)[6]);
      EXPECT_EQ(all[5], sampler->batches(3, 0)[0]);
    }
  }
}

TEST(BatchSampler, CountsEachBatchOnceInAnEvaluationOfSeveralRanks) {
  const auto sampler = std::make_shared<Growing>(7, true);
  std::vector<size_t> counts;
  std::multiset<int64_t> seen;
  for (int64_t rank = 0; rank < 3; ++rank) {
    DataLoader loader(counting(28), {}, sampler);
    loader.shard(rank, 3, /*padded=*/false);
    const IndexBatches share = pass(loader, 0);
    counts.push_back(share.size());
    seen.merge(members(share));
    EXPECT_EQ(loader.num_batches(), static_cast<int64_t>(share.size()));
  }
  EXPECT_EQ(counts, (std::vector<size_t>{3, 2, 2}));
  EXPECT_EQ(seen.size(), 28U);
}

TEST(BatchSampler, KeepsItsBatchesWhenOverfitting) {
  DataLoader loader(counting(28), {}, std::make_shared<Growing>(7));
  EXPECT_NE(pass(loader, 3), pass(loader, 4));
  loader.use_sequential_order();
  EXPECT_EQ(pass(loader, 3), pass(loader, 4));
}

TEST(BatchSampler, MayHaveADifferentNumberOfBatchesInEveryPassIfItDeclaresIt) {
  DataLoader loader(counting(3), {}, std::make_shared<Fixed>(IndexBatches{{2}, {0, 1}}, std::nullopt));
  EXPECT_EQ(loader.num_batches(), std::nullopt);
  EXPECT_EQ(pass(loader, 0), (IndexBatches{{2}, {0, 1}}));
  EXPECT_EQ(pass(loader, 0, 1), (IndexBatches{{0, 1}}));
}

TEST(BatchSampler, MisuseIsReported) {
  const auto message = [](IndexBatches batches, std::optional<int64_t> says) {
    DataLoader loader(counting(3), {}, std::make_shared<Fixed>(std::move(batches), says));
    return error_of<DataError>([&] { loader.start(0); });
  };
  EXPECT_TRUE(holds(message({{0, 3}}, 1), {"batch sampler gave index 3", "3 samples"}));
  EXPECT_TRUE(holds(message({{-1}}, 1), {"index -1"}));
  EXPECT_TRUE(holds(message({{0}, {}}, 2), {"without samples", "number 1"}));
  EXPECT_TRUE(holds(message({{0}, {1}}, 3), {"gave 2 batches", "num_batches() says 3", "nullopt"}));
}

TEST(BatchSampler, RefusesOptionsThatItReplaces) {
  const auto message = [](DataLoaderOptions options) {
    return error_of<ConfigError>([&] { DataLoader(counting(3), options, std::make_shared<Growing>(2)); });
  };
  EXPECT_TRUE(holds(message({.batch_size = 4}), {"DataLoaderOptions.batch_size", "batch sampler"}));
  EXPECT_TRUE(holds(message({.shuffle = true}), {"DataLoaderOptions.shuffle", "batch sampler"}));
  EXPECT_TRUE(holds(message({.drop_last = true}), {"DataLoaderOptions.drop_last", "batch sampler"}));
  EXPECT_TRUE(holds(message({.max_tokens = 9}), {"DataLoaderOptions.max_tokens", "batch sampler"}));
  DataLoader loader(counting(3), {}, std::make_shared<Growing>(2));
  EXPECT_FALSE(loader.set_batch_size(2));
}

}  // namespace
}  // namespace levin::batch_sampler_test
