// trainer.recompute: {budget} and auto: segments are chosen before training, and the run does not change.
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/weight_averaging.h"
#include "levin/metrics/aggregation.h"
#include "levin/optim/adam.h"
#include "levin/recompute/chain_plan.h"
#include "levin/recompute/memory_meter.h"
#include "levin/recompute/recomputation.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/loops/entry.h"
#include "support/captured_console.h"
#include "support/tensor_loader.h"

namespace levin::plan_recomputation_test {
namespace {

using namespace test;

// Dropout draws random numbers, the norm has running statistics.
struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("linear", linear);
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x) {
    return at::dropout(at::tanh(norm->forward(linear->forward(x))), 0.2, is_training());
  }
  torch::nn::Linear linear{32, 32};
  torch::nn::BatchNorm1d norm{32};
};
TORCH_MODULE(Block);

// What is logged is a metric of the run.
class Net : public LightningModule {
 public:
  Net() {
    for (int k = 0; k < 6; ++k) layers->push_back(Block());
    register_module("layers", layers);
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const auto loss = torch::mse_loss(layers->forward(batch[0]), batch[1]);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    samples(static_cast<double>(batch.size()));
    log("samples", samples, {.on_step = false, .on_epoch = true});
    return loss;
  }
  OptimizerConfig configure_optimizers() override { return AdamW(parameters(), {.lr = 1e-2}); }

  torch::nn::Sequential layers;
  metrics::SumMetric samples{};
};

std::shared_ptr<TensorLoader> data() {
  const at::Tensor numbers = torch::arange(96 * 32, at::kFloat).view({96, 32});
  return std::make_shared<TensorLoader>(std::vector<at::Tensor>{torch::sin(numbers), torch::cos(numbers)}, 32);
}

MeasuredChain measure(LightningModule& module, TrainerOptions options = quiet(1, {}),
                      const std::shared_ptr<Loader>& loader = data()) {
  Trainer trainer(std::move(options));
  return measure_fit(trainer, module, loader)->chain;
}

RecomputeOptions budget(int64_t bytes) {
  RecomputeOptions options;
  options.budget = ByteSize{bytes};
  return options;
}

struct Trained {
  std::vector<at::Tensor> tensors;  // weights and buffers
  at::Tensor random;                // what the generator draws afterwards
  Metrics metrics;
  std::string output;
};

Trained train(const RecomputeChoice& recompute) {
  torch::manual_seed(5);
  CapturedConsole console;
  Net module;
  TrainerOptions options = quiet(2, {});
  options.recompute = recompute;
  Trainer trainer(options);
  trainer.fit(module, data());
  Trained result;
  for (const auto& tensor : module.parameters()) result.tensors.push_back(tensor.detach().clone());
  for (const auto& tensor : module.buffers()) result.tensors.push_back(tensor.clone());
  result.random = torch::rand({4});
  result.metrics = trainer.callback_metrics();
  result.output = console.text();
  return result;
}

void expect_same(const Trained& one, const Trained& other) {
  ASSERT_EQ(one.tensors.size(), other.tensors.size());
  for (size_t k = 0; k < one.tensors.size(); ++k) EXPECT_TRUE(torch::equal(one.tensors[k], other.tensors[k])) << k;
  EXPECT_TRUE(torch::equal(one.random, other.random));
  EXPECT_EQ(one.metrics, other.metrics);
}

TEST(PlanRecomputation, ABudgetLeavesTheRunAsIfItsPlanHadBeenWrittenByHand) {
  Net module;
  const MeasuredChain measured = measure(module);
  const int64_t plain = predict_memory(measured.cost, {}).peak;
  const int64_t bytes = (plain + least_peak(measured.cost)) / 2;
  const auto segments = best_segments(measured.cost, bytes);
  ASSERT_TRUE(segments.has_value());
  ASSERT_FALSE(segments->empty());
  const Trained planned = train(budget(bytes));
  EXPECT_TRUE(has(planned.output, "recompute: layers.")) << planned.output;
  EXPECT_TRUE(has(planned.output, "% longer")) << planned.output;
  RecomputeOptions by_hand;
  by_hand.modules = module_ranges(measured.cost, *segments);
  expect_same(planned, train(by_hand));
  expect_same(planned, train({}));  // and recomputation does not change any bit either
}

TEST(PlanRecomputation, WhereEverythingFitsNothingIsComputedAgain) {
  const Trained free = train("auto");
  EXPECT_TRUE(has(free.output, "recompute: nothing is computed again")) << free.output;
  EXPECT_TRUE(has(free.output, "that are free")) << free.output;
  expect_same(free, train({}));
}

TEST(PlanRecomputation, ABudgetThatNothingMeetsReportsTheLeastAndWhatElseHelps) {
  const CapturedConsole console;
  Net module;
  const MeasuredChain measured = measure(module);
  TrainerOptions options = quiet(1, {});
  options.recompute = budget(least_peak(measured.cost) - 2048);
  const std::string error = error_of([&] { Trainer(options).fit(module, data()); });
  EXPECT_TRUE(has(error, "TrainerOptions.recompute.budget")) << error;
  EXPECT_TRUE(has(error, "the least peak of a step")) << error;
  EXPECT_TRUE(has(error, "A batch_size of ")) << error;
  EXPECT_TRUE(has(error, "instead of 32 fits")) << error;
  EXPECT_TRUE(has(error, "strategy: fsdp")) << error;
}

TEST(PlanRecomputation, MeasuringTrainsNothing) {
  torch::manual_seed(5);
  Net module;
  std::vector<at::Tensor> before;
  for (const auto& tensor : module.parameters()) before.push_back(tensor.detach().clone());
  for (const auto& tensor : module.buffers()) before.push_back(tensor.clone());
  int64_t batches = 0;
  LambdaCallback count({.on_train_batch_start = [&](Trainer&, LightningModule&, const Batch&, int64_t) { ++batches; }});
  const MeasuredChain measured = measure(module, quiet(1, count));
  EXPECT_EQ(batches, 0);
  std::vector<at::Tensor> after = module.parameters();
  for (const auto& tensor : module.buffers()) after.push_back(tensor);
  for (size_t k = 0; k < after.size(); ++k) EXPECT_TRUE(torch::equal(before[k], after[k])) << k;
  for (const auto& parameter : module.parameters()) EXPECT_FALSE(parameter.grad().defined());
  EXPECT_EQ(measured.cost.batch, 32);
  EXPECT_EQ(measured.smaller.batch, 16);
  // Six blocks of (32 x 32 + 32) + 2 x 32 numbers, and running means, variances and one counter.
  EXPECT_EQ(measured.cost.parameters, 6 * (4 * (32 * 32 + 32 + 64 + 64) + 8));
  EXPECT_EQ(measured.cost.gradients, 6 * 4 * (32 * 32 + 32 + 64));
  EXPECT_NEAR(static_cast<double>(measured.cost.optimizer_state), 2.0 * static_cast<double>(measured.cost.gradients),
              1024);
  ASSERT_EQ(each_block(measured.cost).size(), 6U);
  EXPECT_EQ(module_ranges(measured.cost, {{1, 6}}), std::vector<std::string>{"layers.0..layers.5"});
}

TEST(PlanRecomputation, MeasuresNothingWhileTheTrainerRuns) {
  Net module, other;
  std::string refused;
  Trainer* running = nullptr;
  LambdaCallback asks({.on_train_start = [&](Trainer&, LightningModule&) {
    try {
      (void)measure_fit(*running, other, data());
    } catch (const Error& error) {
      refused = error.what();
    }
  }});
  Trainer trainer(quiet(1, asks));
  running = &trainer;
  trainer.fit(module, data());
  EXPECT_NE(refused.find("Trainer::fit was called in on_train_start"), std::string::npos) << refused;
  EXPECT_EQ(trainer.global_step(), 3);
  EXPECT_EQ(trainer.module(), &module);
}

TEST(PlanRecomputation, ReportsWhichRunsItCannotPlan) {
  const CapturedConsole console;
  Net module;
  module.set_automatic_optimization(false);
  TrainerOptions options = quiet(1, {});
  options.recompute = budget(1 << 20);
  const std::string error = error_of([&] { Trainer(options).fit(module, data()); });
  EXPECT_TRUE(has(error, "manual optimization")) << error;
  EXPECT_TRUE(has(error, "recompute: {modules: [NAMES]}")) << error;
}

TEST(PlanRecomputation, RefusesStrategiesThatItCannotPlanBeforeAnyRankStarts) {
  for (const char* strategy : {"fsdp", "dp", "dp_balanced"}) {
    TrainerOptions options = quiet(1, {});
    options.devices = int64_t{2};
    options.strategy = strategy;
    options.recompute = budget(1 << 20);
    const std::string error = error_of([&] { Trainer trainer(options); });
    EXPECT_TRUE(holds(error, {"TrainerOptions.recompute: ", strategy, "steps on one device only", "modules: [NAMES]"}));
  }
}

TEST(PlanRecomputation, RefusesAMicroBatchSizeThatIsFoundWhileTraining) {
  const CapturedConsole console;
  Net module;
  TrainerOptions options = quiet(1, {});
  options.micro_batch_size = "auto";
  options.recompute = budget(1 << 30);
  const std::string error = error_of([&] { Trainer(options).fit(module, data()); });
  EXPECT_TRUE(holds(error, {"micro_batch_size: auto finds its size by the memory", "Give it a number"}));
}

// Texts are padded to the longest of their batch.
TEST(PlanRecomputation, MeasuresTheLargestOfTheBatchesThatComeFirst) {
  struct Growing : Loader {
    void start(int64_t, int64_t first) override { next_ = first; }
    bool next(Batch& batch) override {
      if (next_ == 6) return false;
      const int64_t rows = next_++ == 4 ? 64 : 4;
      batch = Batch();
      batch.tensors = {torch::ones({rows, 32}), torch::ones({rows, 32})};
      return true;
    }
    [[nodiscard]] std::optional<int64_t> num_batches() const override { return 6; }
    int64_t next_ = 0;
  };
  const CapturedConsole console;
  Net module, whole;
  const auto growing = std::make_shared<Growing>();
  const MeasuredChain measured = measure(module, quiet(1, {}), growing);
  EXPECT_EQ(measured.cost.batch, 64);
  EXPECT_EQ(measured.batches_seen, 6);
  int64_t batches = 0;
  LambdaCallback count({.on_train_batch_start = [&](Trainer&, LightningModule&, const Batch&, int64_t) { ++batches; }});
  TrainerOptions options = quiet(1, count);
  options.recompute = "auto";
  Trainer(options).fit(whole, growing);
  EXPECT_EQ(batches, 6);  // none is lost
  EXPECT_TRUE(console.has("by the largest of 6 batches")) << console.text();
}

TEST(PlanRecomputation, CountsWhatCallbacksHold) {
  const CapturedConsole console;
  Net module;
  const MeasuredChain without = measure(module);
  const MeasuredChain with = measure(module, quiet(1, EMAWeightAveraging({.decay = 0.9})));
  EXPECT_EQ(without.cost.callbacks, 0);
  EXPECT_EQ(with.cost.callbacks, with.cost.parameters);  // every weight and buffer once more
  EXPECT_EQ(predict_memory(with.cost, {}).peak - predict_memory(without.cost, {}).peak, with.cost.callbacks);
}

TEST(PlanRecomputation, MeasuresOnePartOfABatchThatIsCutUp) {
  const CapturedConsole console;
  Net module;
  TrainerOptions options = quiet(1, {});
  options.micro_batch_size = 8;
  const MeasuredChain parts = measure(module, options);
  const MeasuredChain whole = measure(module);
  EXPECT_EQ(parts.cost.batch, 8);
  EXPECT_EQ(parts.samples, 32);
  EXPECT_EQ(parts.cost.inputs, whole.cost.inputs);
  EXPECT_TRUE(parts.cost.gradients_stay);
  const ChainCost line = at_batch(whole.cost, whole.smaller, 8);  // through two other sizes
  EXPECT_EQ(parts.cost.blocks[3].kept, line.blocks[3].kept);
}

TEST(PlanRecomputation, ReportsHowAModuleGetsBlocksWhereItHasNone) {
  struct Plain : LightningModule {
    Plain() { register_module("linear", linear); }
    at::Tensor training_step(const Batch& batch, int64_t) override {
      return torch::mse_loss(linear->forward(batch[0]), batch[1]);
    }
    OptimizerConfig configure_optimizers() override { return AdamW(parameters(), {.lr = 1e-2}); }
    torch::nn::Linear linear{32, 32};
  } module;
  const CapturedConsole console;
  TrainerOptions options = quiet(1, {});
  options.recompute = budget(1024);
  const std::string error = error_of([&] { Trainer(options).fit(module, data()); });
  EXPECT_TRUE(holds(error, {"its 0 blocks", "call its submodules through levin::call"}));
}

TEST(PlanRecomputation, ABudgetAndNamesExcludeEachOther) {
  const CapturedConsole console;
  Net module;
  TrainerOptions options = quiet(1, {});
  RecomputeOptions both = budget(1 << 20);
  both.modules = {"layers.0"};
  options.recompute = both;
  const std::string error = error_of([&] { Trainer(options).fit(module, data()); });
  EXPECT_TRUE(has(error, "TrainerOptions.recompute: budget chooses segments")) << error;
  EXPECT_TRUE(has(error, "Drop it, or modules")) << error;
}

TEST(MemoryMeter, CountsWhatTensorsHoldAndTheMostSinceTheMark) {
  const auto meter = MemoryMeter::make(at::kCPU);
  EXPECT_EQ(meter->held(), 0);
  at::Tensor kept = torch::empty({1000});
  torch::empty({500});
  EXPECT_EQ(meter->held(), 4000);
  EXPECT_EQ(meter->peak(), 6000);
  meter->mark();
  EXPECT_EQ(meter->peak(), 4000);
  kept = at::Tensor();
  EXPECT_EQ(meter->held(), 0);
}

TEST(MemoryMeter, TensorsMayOutliveIt) {
  at::Tensor tensor;
  {
    const auto meter = MemoryMeter::make(at::kCPU);
    tensor = torch::ones({100});
  }
  EXPECT_EQ(tensor.sum().item<float>(), 100);
  tensor.resize_({1000});  // by the allocator that it came from
  tensor.fill_(2);
  EXPECT_EQ(tensor.sum().item<float>(), 2000);
}

// Allocates scratch memory as oneDNN does.
TEST(MemoryMeter, CountsBarePointers) {
  const auto meter = MemoryMeter::make(at::kCPU);
  c10::Allocator* allocator = c10::GetCPUAllocator();
  void* memory = allocator->raw_allocate(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0U);
  EXPECT_EQ(meter->held(), 1000);
  allocator->raw_deallocate(memory);
  EXPECT_EQ(meter->held(), 0);
}

TEST(MemoryMeter, KnowsWhatIsFree) {
  const int64_t free = free_memory(at::kCPU);
  EXPECT_GT(free, int64_t{1} << 20);
  EXPECT_LT(free, int64_t{1} << 46);
}

}  // namespace
}  // namespace levin::plan_recomputation_test
