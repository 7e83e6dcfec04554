// A world of one: collectives give back what they got.
#include "levin/strategies/single_device.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace levin::single_device_test {
namespace {

TEST(SingleDeviceStrategy, IsAWorldOfOne) {
  const SingleDeviceStrategy strategy;
  EXPECT_EQ(strategy.name(), "single_device");
  EXPECT_EQ(strategy.device(), at::Device(at::kCPU));
  EXPECT_EQ(strategy.rank(), 0);
  EXPECT_EQ(strategy.world_size(), 1);
}

TEST(SingleDeviceStrategy, CollectivesAreIdentities) {
  SingleDeviceStrategy strategy;
  const at::Tensor value = at::ones({2, 3}).mul_(5);
  for (const ReduceOp op : {ReduceOp::mean, ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
    EXPECT_TRUE(strategy.reduce(value, op).equal(value));
  }
  EXPECT_TRUE(strategy.any(true));
  EXPECT_FALSE(strategy.any(false));
  strategy.barrier();
}

TEST(SingleDeviceStrategy, BackwardAddsToTheGradients) {
  SingleDeviceStrategy strategy;
  at::Tensor weight = at::ones({3}).set_requires_grad(true);
  strategy.backward(weight.mul(2).sum(), /*sync=*/false);
  strategy.backward(weight.mul(5).sum(), /*sync=*/true);
  EXPECT_TRUE(weight.grad().equal(at::ones({3}).mul(7)));
}

}  // namespace
}  // namespace levin::single_device_test
