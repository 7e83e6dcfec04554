// The planner's predictions beside what real steps hold: an MLP, a GPT, an encoder with a mask, a residual network,
// XLM-R. What LibTorch's allocator is asked for does not depend on the machine, so the peaks are exact numbers.
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/recompute/chain_plan.h"
#include "levin/recompute/memory_meter.h"
#include "levin/trainer/loops/plan_recomputation.h"
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
  MeasuredChain measured;
  const MeasureOnly only([&](const MeasuredChain& chain, MemoryBudget) { measured = chain; });
  const auto module = shape.make();
  TrainerOptions options = quiet(1, {});
  options.precision = shape.precision;
  Trainer(options).fit(*module, loader_of(shape));
  return measured;
}

RecomputeChoice choice(const std::vector<std::string>& modules) {
  if (modules.empty()) return {};
  RecomputeOptions options;
  options.modules = modules;
  return options;
}

// The most that is held in the second and third step; the data were there before.
int64_t peak_of(const Shape& shape, const std::vector<std::string>& modules) {
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
    Trainer(options).fit(*module, loader_of(shape));
  }
  return peak;
}

TEST(MemoryPlan, PredictsThePeaksOfRealSteps) {
  for (const Shape& shape : plan_shapes::shapes(1)) {
    const CapturedConsole console;
    const MeasuredChain measured = measure(shape);
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
TEST(MemoryPlan, PredictsThePeakOfAnotherBatch) {
  for (Shape shape : plan_shapes::shapes(1)) {
    const CapturedConsole console;
    const MeasuredChain measured = measure(shape);
    shape.batch = shape.batch * 3 / 4;
    const ChainCost cost = at_batch(measured.cost, measured.smaller, shape.batch);
    const auto predicted = static_cast<double>(predict_memory(cost, {}).peak);
    const auto seen = static_cast<double>(peak_of(shape, {}) + cost.inputs);
    EXPECT_NEAR(predicted / seen, 1, 0.05) << shape.name;
  }
}

}  // namespace
}  // namespace levin::memory_plan_test
