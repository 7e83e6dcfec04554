// Strategies and their parts: one process, whose collectives return their input, and parts of a user's own.
#include "levin/strategies/device/single_device.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "levin/core/device_work.h"
#include "levin/core/options/error.h"
#include "levin/strategies/process/ddp.h"

namespace levin::single_device_test {
namespace {

TEST(SingleDeviceStrategy, IsAWorldOfOne) {
  const SingleDeviceStrategy strategy;
  EXPECT_EQ(strategy.name(), "single_device");
  EXPECT_EQ(strategy.placement().device(), at::Device(at::kCPU));
  EXPECT_EQ(strategy.ranks().rank(), 0);
  EXPECT_EQ(strategy.ranks().world_size(), 1);
}

TEST(SingleDeviceStrategy, CollectivesAreIdentities) {
  SingleDeviceStrategy strategy;
  const at::Tensor value = at::ones({2, 3}).mul_(5);
  for (const ReduceOp op : {ReduceOp::mean, ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
    EXPECT_TRUE(strategy.ranks().reduce(value, op).equal(value));
  }
  EXPECT_TRUE(strategy.ranks().any(true));
  EXPECT_FALSE(strategy.ranks().any(false));
  strategy.ranks().barrier();
}

TEST(SingleDeviceStrategy, BackwardAddsToTheGradients) {
  SingleDeviceStrategy strategy;
  at::Tensor weight = at::ones({3}).set_requires_grad(true);
  (void)strategy.gradients().backward(weight.mul(2).sum(), /*sync=*/false, {});
  (void)strategy.gradients().backward(weight.mul(5).sum(), /*sync=*/true, {});
  EXPECT_TRUE(weight.grad().equal(at::ones({3}).mul(7)));
}

TEST(SingleDeviceStrategy, GoesWhereItIsPut) {
  SingleDeviceStrategy strategy;
  EXPECT_EQ(strategy.placement().make_copier(), nullptr) << "on a CPU there is nothing to copy";
  EXPECT_NE(strategy.recorder().make_recorder(), nullptr) << "and steps are recorded as tapes";
  strategy.placement().use_device(at::Device(at::kCUDA, 1));
  EXPECT_EQ(strategy.placement().device(), at::Device(at::kCUDA, 1));
}

// A placement of a user's own, for one device.
struct CpuOnly final : DevicePlacement {
  [[nodiscard]] at::Device device() const override { return at::kCPU; }
};

struct Own : Strategy {
  [[nodiscard]] std::string name() const override { return "own"; }
};

TEST(Strategy, APlacementThatKnowsOneDeviceRefusesAnother) {
  Own strategy;
  strategy.use(std::make_unique<CpuOnly>());
  strategy.placement().use_device(at::kCPU);
  try {
    strategy.placement().use_device(at::Device(at::kCUDA, 2));
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("runs on cpu and not on cuda:2"), std::string::npos) << text;
    EXPECT_NE(text.find("accelerator: cpu"), std::string::npos) << text;
  }
}

TEST(Strategy, AloneIsOneProcessThatShardsAndRecordsNothing) {
  const Own strategy;
  EXPECT_EQ(strategy.ranks().world_size(), 1);
  EXPECT_EQ(strategy.ranks().mesh().data().size(), 1);
  EXPECT_FALSE(strategy.ranks().is_distributed());
  EXPECT_FALSE(strategy.sharding().shard_range(at::ones({2})).has_value());
  EXPECT_EQ(strategy.recorder().make_recorder(), nullptr);
}

// Two equal ranks, seen from one of them.
struct TwoRanks final : RankCollectives {
  [[nodiscard]] int64_t world_size() const override { return 2; }
  [[nodiscard]] at::Tensor sum_on_device(const at::Tensor& value) override { return value + value; }
  [[nodiscard]] at::Tensor reduce_in_step(const at::Tensor& value, ReduceOp /*op*/) override { return value; }
};

// As docs/extending.md has it: gradients that travel as float16.
class HalfGradients final : public GradientSync {
 public:
  void set_up(const ModuleTensors& module, bool /*training*/) override { module_ = module; }
  [[nodiscard]] RankFlags backward(const at::Tensor& loss, bool sync, const RankFlags& own) override {
    local().backward(loss);
    return sync ? reduce(own) : RankFlags();
  }
  [[nodiscard]] RankFlags backward_without_loss(bool sync, const RankFlags& own) override {
    return sync ? reduce(own) : RankFlags();
  }

 private:
  RankFlags reduce(const RankFlags& own) {
    RankCollectives& ranks = parts().ranks();
    for (auto& [name, weight] : module_.parameters) {
      if (!weight.requires_grad()) continue;
      at::Tensor& grad = weight.mutable_grad();
      if (!grad.defined()) grad = at::zeros_like(weight);
      grad.copy_(ranks.sum_on_device(grad.to(at::kHalf)).to(grad.scalar_type()).div_(ranks.mesh().data().size()));
    }
    return flags_of(ranks.reduce_in_step(flags_tensor(own), ReduceOp::max));
  }
  ModuleTensors module_;
};

TEST(Strategy, OnePartIsReplaced) {
  SingleDeviceStrategy strategy;
  strategy.use(std::make_unique<TwoRanks>());
  strategy.use(std::make_unique<HalfGradients>());
  SingleDeviceStrategy moved = std::move(strategy);  // parts stay where they are
  at::Tensor weight = at::ones({1}).set_requires_grad(true);
  moved.set_up({.parameters = {{"weight", weight}}}, /*training=*/true);
  RankFlags own;
  own.add(RankFlag::stop);
  EXPECT_TRUE(moved.gradients().backward(weight.mul(1.0 + 0x1p-12).sum(), /*sync=*/true, own).has(RankFlag::stop));
  EXPECT_EQ(weight.grad().item<double>(), 1) << "float16 has 11 bits";
  EXPECT_EQ(moved.recorder().make_recorder(), nullptr) << "the old recorder does not know these gradients";
  EXPECT_THROW(moved.use(std::unique_ptr<Sharding>()), ConfigError);
}

TEST(Mesh, RanksAreNumberedAlongTheLastDimensionFirst) {
  const Mesh mesh(7, {{"data", 3}, {"shard", 4}});
  EXPECT_EQ(mesh.data().size(), 3);
  EXPECT_EQ(mesh.data().index(), 1);
  EXPECT_EQ(mesh.dimension("shard").index(), 3);
  EXPECT_EQ(mesh.dimension("tensor").size(), 1);
  EXPECT_EQ(mesh.dimension("tensor").index(), 0);
}

TEST(ShardRange, CutsAlongDimensionsAndOutOfTheFlattenedTensor) {
  const at::Tensor full = at::arange(24, at::kFloat).reshape({4, 6});
  const ShardRange block{.offsets = {2, 3}, .sizes = {2, 3}, .view = {4, 6}, .shape = {4, 6}};
  EXPECT_TRUE(block.of(full).equal(full.slice(0, 2, 4).slice(1, 3, 6)));
  EXPECT_EQ(block.numel(), 6);
  EXPECT_EQ(block.flat_offset(), 2 * 6 + 3);
  const ShardRange flat = ShardRange::flat(5, 9, {4, 6});
  EXPECT_TRUE(flat.of(full).equal(at::arange(5, 14, at::kFloat)));
  EXPECT_EQ(flat.flat_offset(), 5);
  flat.of(full).zero_();
  EXPECT_EQ(full[1][0].item<double>(), 0) << "it is a view";
}

TEST(DDP, NcclIsForGpus) {
  DDP strategy({.process_group_backend = "nccl"});
  strategy.ranks().join(World());
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
