#include "levin/strategies/process/rank_difference.h"

#include <gtest/gtest.h>

namespace levin {
namespace {

TEST(RankDifference, EqualStringsHaveNone) {
  EXPECT_FALSE(first_difference({"a: 1\nb: 2\n", "a: 1\nb: 2\n"}));
  EXPECT_FALSE(first_difference({"alone"}));
}

TEST(RankDifference, NamesTheFirstRankAndTheWholeLines) {
  const auto found = first_difference({"a: 1\nbatch: 20\n", "a: 1\nbatch: 20\n", "a: 1\nbatch: 24\n"});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2U);
  EXPECT_EQ(found->on_rank_zero, "batch: 20");
  EXPECT_EQ(found->on_rank, "batch: 24");
}

TEST(RankDifference, ALineThatIsMissingReadsNothing) {
  const auto found = first_difference({"a: 1\n", "a: 1\nb: 2\n"});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->on_rank_zero, "nothing");
  EXPECT_EQ(found->on_rank, "b: 2");
}

TEST(RankDifference, AnOptionThatOneRankAloneHasDoesNotShiftTheOthers) {
  const auto found = first_difference({"a: 1\nb: 2\nlr: 0.1\n", "a: 1\nextra: 7\nb: 2\nlr: 0.2\n"});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->on_rank_zero, "lr: 0.1");
  EXPECT_EQ(found->on_rank, "lr: 0.2");
}

TEST(RankDifference, ALineThatRankZeroAloneHasIsNamed) {
  const auto found = first_difference({"a: 1\nb: 2\nc: 3\n", "a: 1\nc: 3\n"});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->on_rank_zero, "b: 2");
  EXPECT_EQ(found->on_rank, "nothing");
}

TEST(RankDifference, ADifferentOrderIsADifference) {
  const auto found = first_difference({"a (2)\nb (3)\n", "b (3)\na (2)\n"});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->on_rank_zero, "a (2)");
  EXPECT_EQ(found->on_rank, "b (3)");
}

}  // namespace
}  // namespace levin
