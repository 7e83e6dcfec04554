// Replicas of a module or a part of one: equal to the module alone, its buffers kept, outputs where they belong.
#include "levin/strategies/device/data_parallel.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <mutex>

#include "levin/core/options/error.h"
#include "levin/precision/autocast.h"
#include "support/error_text.h"

namespace levin::data_parallel_test {
namespace {

using test::error_of;

namespace F = torch::nn::functional;

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3));
}

at::Tensor data(int64_t samples) {
  torch::manual_seed(2);
  return torch::randn({samples, 4});
}

std::vector<at::Tensor> gradients(const torch::nn::Module& module) {
  std::vector<at::Tensor> grads;
  for (const auto& parameter : module.parameters()) grads.push_back(parameter.grad().clone());
  return grads;
}

TEST(ScatterGather, SharesAreAsEvenAsCanBeAndNoneIsEmpty) {
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(share_sizes(8, 2), (Sizes{4, 4}));
  EXPECT_EQ(share_sizes(5, 4), (Sizes{2, 1, 1, 1}));
  EXPECT_EQ(share_sizes(2, 4), (Sizes{1, 1}));
  EXPECT_EQ(share_sizes(0, 4), (Sizes{0}));
}

TEST(ScatterGather, GatherUndoesScatterAndGradientsPassBoth) {
  at::Tensor x = data(5).requires_grad_();
  const auto slots = cpu_slots(3);
  const at::Tensor back = gather(scatter(x, share_sizes(5, 3), slots), slots[0]);
  EXPECT_TRUE(back.equal(x));
  back.mul(2).sum().backward();
  EXPECT_TRUE(x.grad().equal(torch::full({5, 4}, 2.0)));
  EXPECT_TRUE(gather({torch::tensor(1.0), torch::tensor(2.0)}, slots[0]).equal(torch::tensor({1.0, 2.0})));
}

TEST(ScatterGather, ATensorWithOtherRowsIsAnError) {
  const std::string text = error_of([] { (void)scatter(torch::ones({3, 2}), {4, 4}, cpu_slots(2)); });
  EXPECT_NE(text.find("shape (3, 2)"), std::string::npos) << text;
  EXPECT_NE(text.find("batch of 8 samples"), std::string::npos) << text;
  EXPECT_EQ(scatter(torch::tensor(7), {4, 4}, cpu_slots(2))[1].item<int64_t>(), 7);
}

TEST(DataParallel, EqualsTheModuleAlone) {
  for (const int64_t samples : {8, 7, 2, 1}) {
    auto alone = make_net(), net = make_net();
    const at::Tensor x = data(samples);
    const at::Tensor expected = alone->forward(x);
    expected.pow(2).sum().backward();
    DataParallel parallel(net, cpu_slots(3));
    const at::Tensor y = parallel.forward(x);
    EXPECT_TRUE(torch::allclose(y, expected, 1e-5, 1e-6)) << samples;
    y.pow(2).sum().backward();
    const auto own = gradients(*net), wanted = gradients(*alone);
    for (size_t k = 0; k < own.size(); ++k) EXPECT_TRUE(torch::allclose(own[k], wanted[k], 1e-4, 1e-5)) << samples;
  }
}

TEST(DataParallel, FollowsTheWeightsAndModesOfTheModule) {
  auto net = make_net();
  DataParallel parallel(net, cpu_slots(2));
  (void)parallel.forward(data(4));
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.mul_(0.5);
  }
  net->parameters()[0].set_requires_grad(false);  // a frozen layer
  const at::Tensor y = parallel.forward(data(4));
  EXPECT_TRUE(torch::allclose(y, net->forward(data(4)), 1e-5, 1e-6));
  y.sum().backward();
  EXPECT_FALSE(net->parameters()[0].grad().defined());
  EXPECT_TRUE(net->parameters()[1].grad().defined());

  auto dropout = torch::nn::Sequential(torch::nn::Dropout(0.5));
  DataParallel noisy(dropout, cpu_slots(2));
  dropout->eval();
  EXPECT_TRUE(noisy.forward(torch::ones({6, 6})).equal(torch::ones({6, 6})));
  dropout->train();
  const at::Tensor masked = noisy.forward(torch::ones({6, 6}));
  EXPECT_FALSE(masked.equal(torch::ones({6, 6})));
  EXPECT_FALSE(masked.slice(0, 0, 3).equal(masked.slice(0, 3, 6)));  // the replicas drop different units
}

TEST(DataParallel, WorksWithoutGradientsInInferenceModeAndUnderAutocast) {
  auto net = make_net();
  DataParallel parallel(net, cpu_slots(2));
  const at::Tensor x = data(6);
  const at::Tensor expected = net->forward(x).detach();
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(torch::allclose(parallel.forward(x), expected, 1e-5, 1e-6));
  }
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(parallel.forward(x).requires_grad());
  }
  {
    const Autocast autocast(at::kCPU, at::kBFloat16);
    const at::Tensor y = parallel.forward(x);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    y.sum().backward();
  }
  EXPECT_TRUE(net->parameters()[0].grad().defined());
  parallel.forward(x).sum().backward();  // training continues after inference
}

TEST(DataParallel, TwoForwardPassesBeforeOneBackwardAddUp) {
  auto alone = make_net(), net = make_net();
  const at::Tensor x = data(6);
  (alone->forward(x).sum() + alone->forward(x * 2).sum()).backward();
  DataParallel parallel(net, cpu_slots(2));
  (parallel.forward(x).sum() + parallel.forward(x * 2).sum()).backward();
  const auto own = gradients(*net), wanted = gradients(*alone);
  for (size_t k = 0; k < own.size(); ++k) EXPECT_TRUE(torch::allclose(own[k], wanted[k], 1e-4, 1e-5));
}

TEST(DataParallel, TheFirstReplicasBuffersSurvive) {
  auto net = torch::nn::Sequential(torch::nn::BatchNorm1d(4));
  const at::Tensor x = data(8) + 3;
  DataParallel(net, cpu_slots(2)).forward(x);
  const at::Tensor mean = net->named_buffers()["0.running_mean"];
  EXPECT_TRUE(torch::allclose(mean, 0.1 * x.slice(0, 0, 4).mean(0), 1e-5, 1e-6));  // momentum 0.1, from 0
  EXPECT_EQ(net->named_buffers()["0.num_batches_tracked"].item<int64_t>(), 1);
}

TEST(DataParallelModel, LeavesOneOutputForEachSlotAndTheCriterionMakesThemTheWholeLoss) {
  for (const int64_t samples : {8, 7, 1}) {
    auto alone = make_net(), net = make_net();
    const at::Tensor x = data(samples), target = torch::arange(samples).remainder(3);
    const at::Tensor expected = F::cross_entropy(alone->forward(x), target);
    expected.backward();
    DataParallelModel model(net, cpu_slots(2));
    DataParallelCriterion criterion(model.parallel(),
                                    [](const at::Tensor& y, const at::Tensor& t) { return F::cross_entropy(y, t); });
    const std::vector<at::Tensor> outputs = model.forward(x);
    EXPECT_EQ(outputs.size(), samples == 1 ? 1U : 2U);
    const at::Tensor loss = criterion.forward(outputs, target);
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-6) << samples;
    loss.backward();
    const auto own = gradients(*net), wanted = gradients(*alone);
    for (size_t k = 0; k < own.size(); ++k) EXPECT_TRUE(torch::allclose(own[k], wanted[k], 1e-4, 1e-6)) << samples;
  }
}

// Bytes that are alive, by the slot whose thread has allocated them: LibTorch's allocator reports to it.
class MemoryBySlot final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* memory, int64_t size, size_t, size_t, c10::Device) override {
    const std::lock_guard lock(mutex_);
    if (size > 0) {
      const int64_t slot = current_slot() == nullptr ? 0 : current_slot()->index;
      sizes_[memory] = {slot, size};
      alive_[slot] += size;
    } else if (const auto found = sizes_.find(memory); found != sizes_.end()) {
      alive_[found->second.first] -= found->second.second;
      sizes_.erase(found);
    }
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
  [[nodiscard]] int64_t alive(int64_t slot) {
    const std::lock_guard lock(mutex_);
    return alive_[slot];
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::pair<int64_t, int64_t>> sizes_;
  std::map<int64_t, int64_t> alive_;
};

TEST(DataParallelModel, TheFirstSlotHoldsNoGatheredOutputs) {
  const torch::NoGradGuard no_grad;  // nothing but results stays alive
  const int64_t samples = 512, classes = 256;
  const int64_t all_outputs = samples * classes * static_cast<int64_t>(sizeof(float));
  auto net = torch::nn::Linear(4, classes);
  const at::Tensor x = data(samples), target = torch::zeros({samples}, at::kLong);
  DataParallel plain(net, cpu_slots(2));
  DataParallelModel balanced(net, cpu_slots(2));
  DataParallelCriterion criterion(balanced.parallel(),
                                  [](const at::Tensor& y, const at::Tensor& t) { return F::cross_entropy(y, t); });
  (void)plain.forward(x);  // the copies' weights are there already
  (void)balanced.forward(x);
  {
    const auto memory = std::make_shared<MemoryBySlot>();
    const c10::DebugInfoGuard reports(c10::DebugInfoKind::PROFILER_STATE, memory);
    const at::Tensor gathered = plain.forward(x);
    EXPECT_GE(memory->alive(0), all_outputs);
  }
  {
    const auto memory = std::make_shared<MemoryBySlot>();
    const c10::DebugInfoGuard reports(c10::DebugInfoKind::PROFILER_STATE, memory);
    const auto outputs = balanced.forward(x);
    EXPECT_GE(memory->alive(0), all_outputs / 2);
    EXPECT_LT(memory->alive(0), all_outputs / 2 + all_outputs / 16);  // its own half, the copies' weights, and no more
    EXPECT_GE(memory->alive(1), all_outputs / 2);
    const int64_t before = memory->alive(0);
    const at::Tensor loss = criterion.forward(outputs, target);
    EXPECT_LT(memory->alive(0) - before, 1024);  // one number
  }
}

TEST(DataParallel, AnExceptionNamesTheReplicaAndItsSlot) {
  struct Fails : torch::nn::Cloneable<Fails> {
    void reset() override {}
    at::Tensor forward(const at::Tensor& x) {
      TORCH_CHECK(x.max().item<float>() < 5, "too large");
      return x;
    }
  };
  DataParallel parallel(std::make_shared<Fails>(), cpu_slots(2));
  const std::string text = error_of([&] { (void)parallel.forward(torch::arange(8).to(at::kFloat)); });
  EXPECT_NE(text.find("replica 1 of 2 on cpu:1: too large"), std::string::npos) << text;
}

TEST(DataParallel, AModuleWithoutCloneIsReported) {
  struct Plain : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x; }
  };
  const std::string text = error_of([] { DataParallelModel<Plain>(std::make_shared<Plain>(), cpu_slots(2)); });
  EXPECT_NE(text.find("cannot be copied to cpu:1"), std::string::npos) << text;
  EXPECT_NE(text.find("Cloneable"), std::string::npos) << text;
}

TEST(Replicas, ACopyWithOtherLayersIsAnError) {
  auto net = torch::nn::Linear(2, 3);
  const std::string text =
      error_of([&] { const Replicas replicas(*net, {torch::nn::Linear(2, 4).ptr()}, cpu_slots(2)); });
  EXPECT_NE(text.find("cpu:1 has weight (4, 2) where the module has weight (3, 2)"), std::string::npos) << text;
}

TEST(DataParallelCriterion, RefusesOutputsOfADifferentNumberOfSlots) {
  DataParallelCriterion criterion(std::make_shared<ParallelApply>(cpu_slots(2)),
                                  [](const at::Tensor& y, const at::Tensor&) { return y.sum(); });
  const std::string text = error_of([&] { (void)criterion.forward({}, torch::ones({2})); });
  EXPECT_NE(text.find("0 outputs for 2 slots"), std::string::npos) << text;
}

}  // namespace
}  // namespace levin::data_parallel_test
