#include "levin/data/loading/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <set>

#include "levin/core/options/error.h"
#include "levin/core/random.h"
#include "support/error_text.h"

namespace levin::sampler_test {
namespace {

using test::error_of;
using test::holds;

TEST(DefaultSeed, IsZeroUntilSet) {
  EXPECT_EQ(default_seed(), 0U);
  set_default_seed(7);
  EXPECT_EQ(default_seed(), 7U);
  set_default_seed(0);
}

TEST(MixSeed, SpreadsNeighboursAndTellsItsArgumentsApart) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (uint64_t value = 0; value < 100; ++value) seen.insert(mix_seed(seed, value));
  }
  EXPECT_EQ(seen.size(), 10000U);
}

TEST(RandomSampler, PermutesAnewForEverySeedAndEpochAndOnlyForThose) {
  const RandomSampler sampler(1000);
  const at::Tensor order = sampler.order(1, 0);
  EXPECT_TRUE(at::equal(std::get<0>(order.sort()), at::arange(1000)));
  EXPECT_TRUE(at::equal(order, RandomSampler(1000).order(1, 0)));
  EXPECT_FALSE(at::equal(order, sampler.order(1, 1)));
  EXPECT_FALSE(at::equal(order, sampler.order(2, 0)));
}

TEST(RandomSampler, LeavesTheGlobalGeneratorAlone) {
  const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state().clone();
  (void)RandomSampler(100).order(1, 0);
  (void)RandomSampler(100, {.replacement = true}).order(1, 0);
  EXPECT_TRUE(at::equal(before, at::detail::getDefaultCPUGenerator().get_state()));
}

TEST(RandomSampler, DrawsAsManyAsAskedWithAndWithoutReplacement) {
  const at::Tensor more = RandomSampler(10, {.num_samples = 25}).order(1, 0);
  EXPECT_EQ(more.size(0), 25);
  EXPECT_TRUE(at::equal(std::get<0>(more.narrow(0, 10, 10).sort()), at::arange(10)));  // whole permutations in a row
  const at::Tensor drawn = RandomSampler(10, {.replacement = true, .num_samples = 1000}).order(1, 0);
  EXPECT_EQ(drawn.size(0), 1000);
  EXPECT_EQ(drawn.min().item<int64_t>(), 0);
  EXPECT_EQ(drawn.max().item<int64_t>(), 9);
  EXPECT_TRUE(holds(error_of<ConfigError>([] { RandomSampler(10, {.num_samples = 0}); }),
                    {"RandomSamplerOptions.num_samples", "got 0"}));
}

TEST(SubsetSampler, KeepsItsOrderOrPermutesIt) {
  const at::Tensor indices = at::arange(50, 100);
  EXPECT_TRUE(at::equal(SubsetSampler(indices).order(1, 3), indices));
  const at::Tensor shuffled = SubsetSampler(indices, true).order(1, 3);
  EXPECT_FALSE(at::equal(shuffled, indices));
  EXPECT_TRUE(at::equal(std::get<0>(shuffled.sort()), indices));
  EXPECT_FALSE(at::equal(shuffled, SubsetSampler(indices, true).order(1, 4)));
  EXPECT_TRUE(at::equal(SubsetSampler(std::vector<int64_t>{3, 1}).order(0, 0), at::tensor({3, 1}, at::kLong)));
}

}  // namespace
}  // namespace levin::sampler_test
