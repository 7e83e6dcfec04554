#include "levin/data/streams/stream_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace levin::stream_order_test {
namespace {

using Places = std::vector<StreamPlace>;

StreamOrder order_of(const std::vector<int64_t>& counts, StreamOrderOptions options) {
  options.shards = counts.size();
  return StreamOrder(options, [counts](size_t shard) { return counts.at(shard); });
}

std::vector<std::pair<size_t, int64_t>> sorted(const Places& places) {
  std::vector<std::pair<size_t, int64_t>> all;
  for (const StreamPlace& each : places) all.emplace_back(each.shard, each.index);
  std::sort(all.begin(), all.end());
  return all;
}

const std::vector<int64_t> kCounts{3, 0, 7, 1, 12, 5, 5, 2, 0, 9, 4};  // 48

TEST(StreamOrder, GoesThroughTheShardsInOrderWithoutShuffling) {
  const StreamOrder order = order_of({2, 0, 3}, {});
  EXPECT_EQ(order.at(0, 1, 10), (Places{{0, 0}, {0, 1}, {2, 0}, {2, 1}, {2, 2}}));
  EXPECT_EQ(order.size(), 5);
}

TEST(StreamOrder, VisitsEachSampleOnce) {
  for (const int64_t window : {1, 2, 3, 8, 100}) {
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      const StreamOrder order = order_of(kCounts, {.seed = 7, .epoch = epoch, .shuffle = true, .window = window});
      const auto all = sorted(order.at(0, 1, 1000));
      std::vector<std::pair<size_t, int64_t>> wanted;
      for (size_t shard = 0; shard < kCounts.size(); ++shard) {
        for (int64_t k = 0; k < kCounts[shard]; ++k) wanted.emplace_back(shard, k);
      }
      EXPECT_EQ(all, wanted) << window;
    }
  }
}

TEST(StreamOrder, IsTheSameForAnyNumberOfRanksAndFromAnyPlace) {
  const StreamOrderOptions options{.seed = 3, .epoch = 2, .shuffle = true, .window = 3};
  const Places whole = order_of(kCounts, options).at(0, 1, 48);
  for (const int64_t ranks : {1, 2, 3, 5, 64}) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const Places part = order_of(kCounts, options).at(rank, ranks, 48);
      ASSERT_EQ(std::ssize(part), std::max<int64_t>(0, (48 - rank + ranks - 1) / ranks));
      for (size_t k = 0; k < part.size(); ++k) {
        EXPECT_EQ(part[k], whole[static_cast<size_t>(rank) + k * static_cast<size_t>(ranks)]);
      }
    }
  }
  for (int64_t first = 0; first < 48; ++first) EXPECT_EQ(order_of(kCounts, options).at(first, 1, 1)[0], whole[first]);
}

TEST(StreamOrder, DependsOnSeedAndEpoch) {
  const auto of = [](uint64_t seed, int64_t epoch) {
    return order_of(kCounts, {.seed = seed, .epoch = epoch, .shuffle = true}).at(0, 1, 48);
  };
  EXPECT_EQ(of(1, 1), of(1, 1));
  EXPECT_NE(of(1, 1), of(1, 2));
  EXPECT_NE(of(1, 1), of(2, 1));
}

TEST(StreamOrder, NeedsOneShardForTheFirstBatchAndFewAtATime) {
  const std::vector<int64_t> counts(40, 6);
  const StreamOrder order = order_of(counts, {.seed = 5, .shuffle = true, .window = 4});
  const Places all = order.at(0, 1, 240);
  std::map<size_t, std::pair<size_t, size_t>> used;  // first and last place of each shard
  for (size_t k = 0; k < all.size(); ++k) {
    used.try_emplace(all[k].shard, k, k);
    used[all[k].shard].second = k;
  }
  for (size_t k = 0; k < 6; ++k) EXPECT_EQ(all[k].shard, all[0].shard);
  size_t most = 0;
  for (size_t k = 0; k < all.size(); ++k) {
    const auto open = std::count_if(
        used.begin(), used.end(), [k](const auto& each) { return each.second.first <= k && k <= each.second.second; });
    most = std::max(most, static_cast<size_t>(open));
  }
  EXPECT_EQ(most, 4);
}

TEST(StreamOrder, CountsNoShardBeyondTheWindowThatItNeeds) {
  std::set<size_t> counted;
  const StreamOrder order({.shards = 1000, .shuffle = true, .window = 4}, [&](size_t shard) {
    counted.insert(shard);
    return 10;
  });
  (void)order.at(0, 1, 10);
  EXPECT_EQ(counted.size(), 1);
  (void)order.at(0, 1, 11);
  EXPECT_EQ(counted.size(), 3);
}

TEST(StreamOrder, DrawsEachPermutationEquallyOften) {
  std::map<std::vector<size_t>, int> shards;
  std::map<std::vector<int64_t>, int> samples;
  constexpr int kDraws = 6000;
  for (int seed = 0; seed < kDraws; ++seed) {
    const auto number = static_cast<uint64_t>(seed);
    ++shards[order_of({1, 1, 1}, {.seed = number, .shuffle = true}).shards()];
    std::vector<int64_t> indices;
    for (const StreamPlace& each : order_of({3}, {.seed = number, .shuffle = true}).at(0, 1, 3)) {
      indices.push_back(each.index);
    }
    ++samples[indices];
  }
  // The standard deviation of each count is sqrt(6000 / 6 * 5 / 6) = 29; these are five of them.
  EXPECT_EQ(shards.size(), 6);
  for (const auto& [order, count] : shards) EXPECT_NEAR(count, kDraws / 6, 145);
  EXPECT_EQ(samples.size(), 6);
  for (const auto& [order, count] : samples) EXPECT_NEAR(count, kDraws / 6, 145);
}

}  // namespace
}  // namespace levin::stream_order_test
