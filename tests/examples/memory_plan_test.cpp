// The planner's predictions compared with the memory of real steps: an MLP, a GPT, an encoder with a mask, a residual
// network, XLM-R. What LibTorch's allocator is asked for does not depend on the machine, so the peaks are exact
// numbers.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/cli/commands/plan_devices.h"
#include "levin/recompute/chain_plan.h"
#include "levin/recompute/memory_meter.h"
#include "levin/trainer/loops/entry.h"
#include "plan_shapes.h"
#include "support/captured_console.h"
#include "support/tensor_loader.h"

namespace levin::memory_plan_test {
namespace {

using namespace test;
using plan_shapes::Shape;

std::shared_ptr<TensorLoader> loader_of(const Shape& shape) {
  return std::make_shared<TensorLoader>(shape.data, shape.batch);
}

MeasuredChain measure(const Shape& shape) {
  const auto module = shape.make();
  TrainerOptions options = quiet(1, {});
  options.precision = shape.precision;
  Trainer trainer(options);
  return measure_fit(trainer, *module, loader_of(shape))->chain;
}

// Each shape is measured once for all tests: with bfloat16, which many processors compute slowly, that takes seconds.
const MeasuredChain& measured_once(const Shape& shape) {
  static std::map<std::string, MeasuredChain> measured;
  const auto known = measured.find(shape.name);
  return known != measured.end() ? known->second : measured.emplace(shape.name, measure(shape)).first->second;
}

RecomputeChoice choice(const std::vector<std::string>& modules) {
  if (modules.empty()) return {};
  RecomputeOptions options;
  options.modules = modules;
  return options;
}

// The most that is held in the second and third step; the data were there before.
int64_t peak_of(const Shape& shape, const std::vector<std::string>& modules, const TrainerOptions& where = {}) {
  const auto meter = MemoryMeter::make(at::kCPU);
  int64_t peak = 0;
  LambdaCallback watch(
      {.on_train_batch_start = [&](Trainer&, LightningModule&, const Batch&, int64_t) { meter->mark(); },
       .on_train_batch_end =
           [&](Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) {
             if (trainer.global_step() > 1) peak = std::max(peak, meter->peak());
           }});
  {
    const auto module = shape.make();
    TrainerOptions options = quiet(1, watch);
    options.precision = shape.precision;
    options.recompute = choice(modules);
    options.devices = where.devices;
    options.strategy = where.strategy;
    options.accumulate_grad_batches = where.accumulate_grad_batches;
    Trainer(options).fit(*module, loader_of(shape));
  }
  return peak;
}

TEST(MemoryPlan, PredictsThePeaksOfRealSteps) {
  for (const Shape& shape : plan_shapes::shapes(1)) {
    const CapturedConsole console;
    const MeasuredChain& measured = measured_once(shape);
    const ChainCost& cost = measured.cost;
    ASSERT_GE(each_block(cost).size(), 6U) << shape.name;
    const int64_t plain = predict_memory(cost, {}).peak;
    const int64_t least = least_peak(cost);
    EXPECT_LT(least, plain) << shape.name;
    const std::vector<std::pair<std::string, Segments>> plans = {
        {"no recomputation", {}},
        {"each block", each_block(cost)},
        {"square root", square_root_segments(cost)},
        {"least", *best_segments(cost, least)},
        {"half way", *best_segments(cost, (plain + least) / 2)}};
    for (const auto& [name, segments] : plans) {
      const auto modules = module_ranges(cost, segments);
      const auto predicted = static_cast<double>(predict_memory(cost, segments).peak);
      const auto seen = static_cast<double>(peak_of(shape, modules) + cost.inputs);
      std::printf("%-8s %-17s %2zu segments: predicted %9.0f, measured %9.0f: %+.1f %%  (%s)\n", shape.name.c_str(),
                  name.c_str(), segments.size(), predicted, seen, 100 * (predicted / seen - 1),
                  predict_memory(cost, segments).at.c_str());
      if (segments.size() < 6) std::printf("%s\n", join(modules).c_str());
      EXPECT_NEAR(predicted / seen, 1, 0.05) << shape.name << ", " << name;
    }
  }
}

// Activations of half the batch were measured too: the line through both must meet a third.
TEST(MemoryPlan, PredictsThePeakOfADifferentBatch) {
  for (Shape shape : plan_shapes::shapes(1)) {
    const CapturedConsole console;
    const MeasuredChain& measured = measured_once(shape);
    shape.batch = shape.batch * 3 / 4;
    const ChainCost cost = at_batch(measured.cost, measured.smaller, shape.batch);
    const auto predicted = static_cast<double>(predict_memory(cost, {}).peak);
    const auto seen = static_cast<double>(peak_of(shape, {}) + cost.inputs);
    EXPECT_NEAR(predicted / seen, 1, 0.05) << shape.name;
  }
}

// A network that is called as a whole, in whose Sequential the blocks are. `outside`: rounds of other operators that
// follow.
struct NetImpl : torch::nn::Module {
  NetImpl(int64_t width, int64_t blocks, int64_t times) : outside(times) {
    for (int64_t k = 0; k < blocks; ++k) {
      layers->push_back(torch::nn::Linear(width, width));
      layers->push_back(torch::nn::ReLU());
    }
    register_module("layers", layers);
  }
  at::Tensor forward(at::Tensor x) {
    x = layers->forward(x);
    for (int64_t k = 0; k < outside; ++k) x = (x * x).sin();
    return x;
  }
  torch::nn::Sequential layers;
  int64_t outside;
};
TORCH_MODULE(Net);

// Calls the network within a wrapper, or directly the blocks of its Sequential.
struct Wrapped : LightningModule {
  struct InnerImpl : torch::nn::Module {
    explicit InnerImpl(const Net& made) : net(register_module("net", made)) {}
    at::Tensor forward(const at::Tensor& x) { return levin::call(net, x); }
    Net net;
  };
  Wrapped(int64_t blocks, int64_t outside, bool direct)
      : model(register_module("model", std::make_shared<InnerImpl>(Net(64, blocks, outside)))), direct_(direct) {}
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor& x = batch[0];
    return torch::mse_loss(direct_ ? model->net->layers->forward(x) : levin::call(*model, x), batch[1]);
  }
  OptimizerConfig configure_optimizers() override { return AdamW(parameters(), {.lr = 1e-3}); }
  std::shared_ptr<InnerImpl> model;

 private:
  bool direct_;
};

Shape wrapped_shape(int64_t blocks, int64_t outside, bool direct = false) {
  return {"wrapped MLP",
          [=] { return std::make_shared<Wrapped>(blocks, outside, direct); },
          {torch::randn({768, 64}), torch::randn({768, 64})},
          256};
}

TEST(MemoryPlan, SeesTheBlocksOfAModelWithinWrappers) {
  const CapturedConsole console;
  const Shape shape = wrapped_shape(8, 0);
  const ChainCost cost = measure(shape).cost, direct = measure(wrapped_shape(8, 0, /*direct=*/true)).cost;
  ASSERT_EQ(each_block(cost).size(), 16U);
  EXPECT_EQ(module_ranges(cost, {each_block(cost)[0]}), std::vector<std::string>{"model.net.layers.0"});
  EXPECT_EQ(least_peak(cost), least_peak(direct));
  EXPECT_LT(least_peak(cost), predict_memory(cost, {}).peak * 3 / 4);
  for (const Segments& segments : {Segments{}, each_block(cost), square_root_segments(cost)}) {
    const auto predicted = static_cast<double>(predict_memory(cost, segments).peak);
    const auto seen = static_cast<double>(peak_of(shape, module_ranges(cost, segments)) + cost.inputs);
    EXPECT_NEAR(predicted / seen, 1, 0.05) << join(module_ranges(cost, segments));
  }
}

// Most of what it keeps is its own: without it as a block, nothing could be done about that.
TEST(MemoryPlan, TakesABlockAsAWholeIfThoseWithinKeepLittleOfIt) {
  const CapturedConsole console;
  const Shape shape = wrapped_shape(1, 20);
  const MeasuredChain measured = measure(shape);
  ASSERT_EQ(each_block(measured.cost).size(), 1U);
  EXPECT_EQ(module_ranges(measured.cost, each_block(measured.cost)), std::vector<std::string>{"model.net"});
  const auto predicted = static_cast<double>(predict_memory(measured.cost, {}).peak);
  EXPECT_NEAR(predicted / static_cast<double>(peak_of(shape, {}) + measured.cost.inputs), 1, 0.05);
}

// A GPT of which dp can make replicas.
struct CopiedGpt : GPT {
  using GPT::GPT;
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<CopiedGpt>(options());
  }
};

// An MLP of which dp can make replicas.
struct CopiedMlp : plan_shapes::Mlp {
  CopiedMlp(int64_t width, int64_t blocks) : Mlp(width, blocks), width_(width), blocks_(blocks) {}
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<CopiedMlp>(width_, blocks_);
  }
  int64_t width_, blocks_;
};

// Slots on one CPU share its memory, so the sum over the devices is what can be measured.
void expect_peak_of_two_devices(const Shape& shape, int64_t accumulate, double within) {
  TrainerOptions one = quiet(1, {});
  one.accumulate_grad_batches = accumulate;
  MeasuredChain measured;
  {
    const CapturedConsole console;
    const auto module = shape.make();
    Trainer trainer(one);
    measured = measure_fit(trainer, *module, loader_of(shape), 2)->chain;
  }
  EXPECT_EQ(measured.cost.batch, 8);
  EXPECT_EQ(measured.samples, 16);
  int64_t predicted = 0;
  for (const auto& device : predict_devices(measured.cost, measured.smaller, 16, {"cpu:0", "cpu:1"}, {}))
    predicted += device.peak;
  for (const char* strategy : {"dp", "dp_balanced"}) {
    TrainerOptions options;
    options.devices = std::vector<std::string>{"cpu", "cpu"};
    options.strategy = strategy;
    options.accumulate_grad_batches = accumulate;
    const auto seen = static_cast<double>(peak_of(shape, {}, options) + measured.cost.inputs);
    std::printf("%s, %s, %lld batches a step: predicted %lld, measured %.0f: %+.1f %%\n", shape.name.c_str(), strategy,
                static_cast<long long>(accumulate), static_cast<long long>(predicted), seen,
                100 * (static_cast<double>(predicted) / seen - 1));
    EXPECT_NEAR(static_cast<double>(predicted) / seen, 1, within) << strategy;
  }
}

TEST(MemoryPlan, PredictsThePeakOfAStepOnTwoDevicesOfOneProcess) {
  torch::manual_seed(3);
  GPTOptions gpt;
  gpt.vocab_size = 200;
  gpt.block_size = 32;
  gpt.n_layer = 4;
  gpt.n_embd = 32;
  const Shape shape{"GPT",
                    [gpt] { return std::make_shared<CopiedGpt>(gpt); },
                    {torch::randint(200, {96, 32}), torch::randint(200, {96, 32})}};
  for (const int64_t accumulate : {1, 2}) expect_peak_of_two_devices(shape, accumulate, 0.1);
}

// Weights, gradients and their sums are nearly all of it.
TEST(MemoryPlan, CountsTheGradientsOfEveryReplica) {
  torch::manual_seed(3);
  const Shape shape{"wide MLP",
                    [] { return std::make_shared<CopiedMlp>(256, 6); },
                    {torch::randn({96, 256}), torch::randn({96, 256})}};
  for (const int64_t accumulate : {1, 2}) expect_peak_of_two_devices(shape, accumulate, 0.05);
}

}  // namespace
}  // namespace levin::memory_plan_test
