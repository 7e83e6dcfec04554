#include "levin/data/loading/sum_tree.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "levin/core/random.h"

namespace levin::sum_tree_test {
namespace {

double uniform(uint64_t k) {
  return static_cast<double>(mix_seed(5, k) >> 11) * 0x1p-53;
}

TEST(SumTree, TheTotalEqualsAPlainSumAfterManyUpdates) {
  for (const int64_t size : {1, 2, 7, 64, 1000}) {
    SumTree tree(size);
    std::vector<double> plain(static_cast<size_t>(size), 0.0);
    for (uint64_t k = 0; k < 20000; ++k) {
      const auto index = static_cast<int64_t>(mix_seed(3, k) % static_cast<uint64_t>(size));
      const double value = std::pow(10, 8 * uniform(k) - 4);  // of many orders of magnitude
      tree.set(index, value);
      plain[static_cast<size_t>(index)] = value;
    }
    const double sum = std::accumulate(plain.begin(), plain.end(), 0.0);
    EXPECT_NEAR(tree.total(), sum, 1e-12 * sum) << size;
    for (int64_t i = 0; i < size; ++i) EXPECT_EQ(tree[i], plain[static_cast<size_t>(i)]);
  }
}

TEST(SumTree, KeepsNothingOfNumbersThatWereReplaced) {
  SumTree tree(3);
  tree.set(0, 1e300);
  tree.set(1, 0.25);
  tree.set(0, 0.5);
  EXPECT_EQ(tree.total(), 0.75);
  tree.set(0, 0);
  tree.set(1, 0);
  EXPECT_EQ(tree.total(), 0);
}

TEST(SumTree, FindsTheIndexInWhosePartAMassIs) {
  SumTree tree(5);
  const std::vector<double> values{1, 0, 2, 0.5, 0};
  for (int64_t i = 0; i < 5; ++i) tree.set(i, values[static_cast<size_t>(i)]);
  EXPECT_EQ(tree.find(0), 0);
  EXPECT_EQ(tree.find(0.999), 0);
  EXPECT_EQ(tree.find(1), 2);
  EXPECT_EQ(tree.find(2.999), 2);
  EXPECT_EQ(tree.find(3), 3);
  EXPECT_EQ(tree.find(3.499), 3);
}

TEST(SumTree, NeverFindsAnIndexWhoseNumberIsZero) {
  SumTree tree(6);
  tree.set(2, 0.1);
  tree.set(3, 0.7);
  for (const double mass : {0.0, 0.1, 0.5, 0.8, 0.9, 1e9}) {
    const int64_t found = tree.find(mass);
    EXPECT_TRUE(found == 2 || found == 3) << mass << " finds " << found;
  }
}

}  // namespace
}  // namespace levin::sum_tree_test
