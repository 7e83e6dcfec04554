#include "levin/cli/commands/step_model.h"

#include <gtest/gtest.h>

namespace levin {
namespace {

// Messages that cost their bytes alone, or their number alone: each term is seen by itself.
constexpr Link kBytesOnly{1e9, 0};
constexpr Link kMessagesOnly{1e30, 1e-3};

StepCost cost_of(double bytes) {
  StepCost cost;
  cost.forward = 1;
  cost.backward = 2;
  cost.optimizer = 0.5;
  cost.bytes = bytes;
  cost.bucket_bytes = 1e9;
  return cost;
}

TEST(StepModel, ARingSendsTwiceTheBytesForAnyNumberOfDevices) {
  EXPECT_DOUBLE_EQ(all_reduce_seconds(1e9, {1, 2, kBytesOnly, {}}), 1.0);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(1e9, {1, 4, kBytesOnly, {}}), 1.5);
  EXPECT_NEAR(all_reduce_seconds(1e9, {1, 1000, kBytesOnly, {}}), 2.0, 0.01);
  EXPECT_EQ(all_reduce_seconds(1e9, {1, 1, kBytesOnly, {}}), 0.0);
}

TEST(StepModel, LatencyGrowsWithTheDevicesOfANodeAndWithTheNodes) {
  EXPECT_DOUBLE_EQ(all_gather_seconds(8, {1, 8, kMessagesOnly, kMessagesOnly}), 7e-3);
  EXPECT_DOUBLE_EQ(all_gather_seconds(8, {16, 8, kMessagesOnly, kMessagesOnly}), (7 + 15) * 1e-3);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(8, {16, 8, kMessagesOnly, kMessagesOnly}), 2 * (7 + 15) * 1e-3);
}

TEST(StepModel, TheSlowerLinkBetweenNodesCountsOnItsOwn) {
  const Link slow{1e8, 0};
  EXPECT_DOUBLE_EQ(all_gather_seconds(1e9, {2, 2, kBytesOnly, slow}), 0.5 + 5.0);
}

TEST(StepModel, OneDeviceTakesItsOwnTime) {
  const Cluster one{1, 1, kBytesOnly, kBytesOnly};
  EXPECT_DOUBLE_EQ(predict_ddp(cost_of(1e9), one).step, 3.5);
  EXPECT_DOUBLE_EQ(predict_fsdp(cost_of(1e9), one, 3).step, 3.5);
  EXPECT_DOUBLE_EQ(predict_ddp(cost_of(1e9), one).efficiency, 1.0);
}

TEST(StepModel, AReductionInOneBucketComesAfterBackward) {
  const auto two = predict_ddp(cost_of(1e9), {1, 2, kBytesOnly, {}});
  EXPECT_DOUBLE_EQ(two.communication, 1.0);
  EXPECT_DOUBLE_EQ(two.step, 3.5 + 1.0);
  EXPECT_DOUBLE_EQ(two.efficiency, 3.5 / 4.5);
}

TEST(StepModel, InManyBucketsOnlyTheLastIsSeenWhereComputingTakesLonger) {
  StepCost cost = cost_of(1e9);
  cost.bucket_bytes = 1e8;
  EXPECT_DOUBLE_EQ(predict_ddp(cost, {1, 2, kBytesOnly, {}}).step, 3.5 + 0.1);
}

TEST(StepModel, WhereSendingTakesLongerOnlyTheFirstPartOfBackwardIsHidden) {
  StepCost cost = cost_of(1e10);
  cost.bucket_bytes = 1e9;
  // 10 s of sending begin when a tenth of backward's 2 s is done.
  EXPECT_DOUBLE_EQ(predict_ddp(cost, {1, 2, kBytesOnly, {}}).step, 1 + 0.2 + 10 + 0.5);
}

TEST(StepModel, FsdpSharesTheOptimizerAndSendsHalfAsMuchAgainInStageThree) {
  const Cluster four{1, 4, kBytesOnly, {}};
  const double gather = 0.75;
  const auto second = predict_fsdp(cost_of(1e9), four, 2);
  EXPECT_DOUBLE_EQ(second.communication, 2 * gather);
  EXPECT_DOUBLE_EQ(second.step, 1 + (2 + gather) + 0.125 + gather);
  const auto third = predict_fsdp(cost_of(1e9), four, 3);
  EXPECT_DOUBLE_EQ(third.communication, 3 * gather);
  EXPECT_DOUBLE_EQ(third.step, (1 + gather) + (2 + 2 * gather) + 0.125);
}

TEST(StepModel, UnitsHideWhatStageThreeGathers) {
  StepCost cost = cost_of(1e9);
  cost.units = 10;
  const double gather = 0.75;
  EXPECT_DOUBLE_EQ(predict_fsdp(cost, {1, 4, kBytesOnly, {}}, 3).step,
                   (1 + gather / 10) + (2 + 2 * gather / 10) + 0.125);
}

}  // namespace
}  // namespace levin
