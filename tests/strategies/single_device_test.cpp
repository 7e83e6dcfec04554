// A world of one: collectives return their input.
#include "levin/strategies/device/single_device.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "levin/core/device_work.h"
#include "levin/core/error.h"
#include "levin/strategies/process/ddp.h"

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
  (void)strategy.backward(weight.mul(2).sum(), /*sync=*/false, {});
  (void)strategy.backward(weight.mul(5).sum(), /*sync=*/true, {});
  EXPECT_TRUE(weight.grad().equal(at::ones({3}).mul(7)));
}

TEST(SingleDeviceStrategy, GoesWhereItIsPut) {
  SingleDeviceStrategy strategy;
  EXPECT_EQ(strategy.make_copier(), nullptr) << "on a CPU there is nothing to copy";
  EXPECT_NE(strategy.make_recorder(), nullptr) << "and steps are recorded as tapes";
  strategy.use_device(at::Device(at::kCUDA, 1));
  EXPECT_EQ(strategy.device(), at::Device(at::kCUDA, 1));
}

// A user's strategy, for one device.
struct Own : Strategy {
  [[nodiscard]] std::string name() const override { return "own"; }
  [[nodiscard]] at::Device device() const override { return at::kCPU; }
  [[nodiscard]] int64_t rank() const override { return 0; }
  [[nodiscard]] int64_t world_size() const override { return 1; }
  [[nodiscard]] RankNotes backward(const at::Tensor& loss, bool, const RankNotes& own) override {
    loss.backward();
    return own;
  }
  [[nodiscard]] at::Tensor reduce(const at::Tensor& value, ReduceOp) override { return value; }
  [[nodiscard]] bool any(bool value) override { return value; }
  void barrier() override {}
};

TEST(Strategy, OneThatKnowsOneDeviceRefusesAnother) {
  Own strategy;
  strategy.use_device(at::kCPU);
  try {
    strategy.use_device(at::Device(at::kCUDA, 2));
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("own runs on cpu and not on cuda:2"), std::string::npos) << text;
    EXPECT_NE(text.find("accelerator: cpu"), std::string::npos) << text;
  }
}

TEST(DDP, NcclIsForGpus) {
  DDP strategy({.process_group_backend = "nccl"});
  strategy.join(World());
  try {
    strategy.set_up({}, /*training=*/true);
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("DDPOptions.process_group_backend: nccl"), std::string::npos) << text;
    EXPECT_NE(text.find("Use gloo, shm or auto"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace levin::single_device_test
