// Micro-batches on the parts of a model: the order of 1F1B, real overlap, and the gradients of the whole batch.
#include "levin/strategies/device/pipeline.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

#include "levin/precision/mixed_precision.h"
#include "levin/strategies/device/model_parallel.h"
#include "support/parted_module.h"

namespace levin::pipeline_test {
namespace {

using test::classes;
using test::error_of;
using test::expect_parts;
using test::PartedModule;
using test::parts_options;
using test::weights;

std::shared_ptr<ModelParallel> piped(int64_t micro_batches, Placement placement = {{"encoder", 0}, {"decoder", 1}}) {
  return std::make_shared<ModelParallel>(
      ModelParallelOptions{.placement = std::move(placement), .pipeline = PipelineOptions{micro_batches}});
}

std::string order_text(const std::vector<PipelineTask>& tasks) {
  std::string text;
  for (const auto& task : tasks) text += (task.forward ? "F" : "B") + std::to_string(task.micro_batch) + " ";
  return text;
}

// Narayanan et al. 2021 (Megatron-LM), figure 4, for 4 stages and 8 micro-batches, counted from 0.
TEST(OneForwardOneBackward, IsTheOrderOfTheArticle) {
  EXPECT_EQ(order_text(one_forward_one_backward(0, 4, 8)), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7 ");
  EXPECT_EQ(order_text(one_forward_one_backward(2, 4, 8)), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7 ");
  EXPECT_EQ(order_text(one_forward_one_backward(3, 4, 8)), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 ");
  EXPECT_EQ(order_text(one_forward_one_backward(0, 4, 2)), "F0 F1 B0 B1 ");
  EXPECT_EQ(order_text(one_forward_one_backward(0, 1, 3)), "F0 B0 F1 B1 F2 B2 ");
}

struct Result {
  at::Tensor weights;
  Metrics metrics;
};

Result train(std::shared_ptr<Strategy> strategy, int64_t devices, int64_t samples = 48,
             const std::function<void(TrainerOptions&)>& change = nullptr, double dropout = 0) {
  PartedModule module(dropout);
  seed_everything(7);
  TrainerOptions options = parts_options(std::move(strategy), devices);
  if (change) change(options);
  Trainer trainer(options);
  trainer.fit(module, classes(samples, 16));
  return {weights(module), trainer.callback_metrics()};
}

Result alone(int64_t samples = 48, const std::function<void(TrainerOptions&)>& change = nullptr) {
  return train(std::make_shared<SingleDeviceStrategy>(), 1, samples, change);
}

bool close(const Result& one, const Result& other, double tolerance = 1e-5) {
  for (const auto& [name, value] : one.metrics) {
    if (std::abs(other.metrics.at(name) - value) > tolerance) return false;
  }
  return torch::allclose(one.weights, other.weights, tolerance, tolerance);
}

TEST(Pipeline, TrainsAsTheWholeBatchDoes) {
  const Result whole = alone();
  for (const int64_t micro_batches : {2, 4, 16, 100}) EXPECT_TRUE(close(train(piped(micro_batches), 2), whole));
  EXPECT_TRUE(close(train(piped(4, {{"encoder.*", 1}, {"decoder", 2}}), 3), whole));  // blocks as one stage
  EXPECT_TRUE(close(train(piped(4, {{"encoder.0", 0}, {"encoder.[12]", 1}, {"decoder", 2}}), 3), whole));
  EXPECT_TRUE(close(train(piped(3), 2, 50), alone(50)));  // 6 + 5 + 5, and a tail of 2
}

TEST(Pipeline, TrainsAsTheWholeBatchDoesWithGroupsAccumulationClippingAndMixedPrecision) {
  const Placement groups{{"encoder", std::vector<int64_t>{0, 1}}, {"decoder", std::vector<int64_t>{2, 3}}};
  EXPECT_TRUE(close(train(piped(4, groups), 4), alone()));
  const auto window = [](TrainerOptions& o) {
    o.accumulate_grad_batches = 2;
    o.gradient_clip_val = 0.1;
  };
  EXPECT_TRUE(close(train(piped(4), 2, 48, window), alone(48, window)));
  const auto half = [](TrainerOptions& o) {
    o.precision = MixedPrecision({.dtype = MixedDtype::float16, .scaler = GradScalerOptions{}});
  };
  const Result mixed = train(piped(4), 2, 48, half);
  EXPECT_TRUE(close(mixed, alone(48, half), 1e-2));
  EXPECT_FALSE(close(mixed, alone(), 1e-7));  // it did not compute in float32
}

/// Samples with as many tokens as their class says: none, one or two.
struct CountsTokens : PartedModule {
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const auto none = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone);
    const at::Tensor tokens = batch[1].to(at::kFloat);
    set_loss_weight(tokens.sum());
    return (torch::nn::functional::cross_entropy(forward(batch[0]), batch[1], none) * tokens).sum() / tokens.sum();
  }
};

TEST(Pipeline, WeighsMicroBatchesByTheirTokens) {
  const auto fit = [](std::shared_ptr<Strategy> strategy, int64_t devices, int64_t accumulate) {
    CountsTokens module;
    seed_everything(7);
    TrainerOptions options = parts_options(std::move(strategy), devices);
    options.accumulate_grad_batches = accumulate;
    Trainer(options).fit(module, classes(48, 16 / accumulate));
    return weights(module);
  };
  const at::Tensor whole = fit(std::make_shared<SingleDeviceStrategy>(), 1, 1);
  for (const int64_t accumulate : {1, 2}) {
    EXPECT_TRUE(torch::allclose(fit(piped(3), 2, accumulate), whole, 1e-5, 1e-5)) << accumulate;
  }
}

TEST(Pipeline, IsAFunctionOfTheSeedWithDropoutToo) {
  const Result once = train(piped(4), 2, 48, nullptr, 0.5);
  for (int again = 0; again < 3; ++again) {
    EXPECT_TRUE(train(piped(4), 2, 48, nullptr, 0.5).weights.equal(once.weights));
  }
  EXPECT_FALSE(train(piped(4), 2).weights.equal(once.weights));
}

TEST(Pipeline, EachStageKeepsTheOrderOf1F1B) {
  const auto strategy = piped(4, {{"encoder.0", 0}, {"encoder.[12]", 1}, {"decoder", 2}});
  strategy->set_recording(true);
  (void)train(strategy, 3, 16, [](TrainerOptions& o) { o.max_steps = 1; });
  std::map<std::string, std::string> orders;
  for (const auto& event : strategy->trace().events) {
    if (event.what == "forward") continue;
    orders[event.slot + " " + event.part] += event.what + std::to_string(event.micro_batch) + " ";
  }
  EXPECT_EQ(orders, (std::map<std::string, std::string>{
                        {"cpu:0 encoder.0", "F0 F1 F2 B0 F3 B1 B2 B3 "},
                        {"cpu:1 encoder.1, encoder.2", "F0 F1 B0 F2 B1 F3 B2 B3 "},
                        {"cpu:2 decoder", "F0 B0 F1 B1 F2 B2 F3 B3 "},
                    }));
}

// Two stages that each wait, within one step, for the other to be at work.
class Meeting {
 public:
  bool wait_for(const std::string& what) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return begun_[what] > 0; });
  }
  void begin(const std::string& what) {
    const std::lock_guard lock(mutex_);
    ++begun_[what];
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int> begun_;
};

struct Watched : torch::nn::Module {
  explicit Watched(std::function<void(int)> on_forward) : watch(std::move(on_forward)) {}
  at::Tensor forward(const at::Tensor& x) {
    watch(calls++);
    return layer->forward(x);
  }
  std::function<void(int)> watch;
  int calls = 0;
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(8, 8))};
};

class Meeters : public LightningModule {
 public:
  at::Tensor training_step(const Batch& batch, int64_t) override {
    return levin::call(second, levin::call(first, batch[0])).pow(2).mean();
  }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1}); }

  Meeting meeting;
  bool overlapped = false;
  std::shared_ptr<Watched> first = register_module(
      "first", std::make_shared<Watched>([this](int call) { meeting.begin("first " + std::to_string(call)); }));
  std::shared_ptr<Watched> second = register_module("second", std::make_shared<Watched>([this](int call) {
                                                      // Micro-batch 0 is here only once the first stage has done it.
                                                      if (call == 0) overlapped = meeting.wait_for("first 1");
                                                    }));
};

TEST(Pipeline, StagesWorkAtTheSameTime) {
  Meeters module;
  Trainer trainer(parts_options(piped(2, {{"first", 0}, {"second", 1}}), 2));
  trainer.fit(module, classes(16, 16));
  EXPECT_TRUE(module.overlapped);
}

TEST(Pipeline, StagesShareTheThreadsOfOperators) {
  const int before = at::get_num_threads();
  at::set_num_threads(6);
  Meeters module;
  std::vector<int> seen(2);
  module.first->watch = [&](int) { seen[0] = at::get_num_threads(); };
  module.second->watch = [&](int) { seen[1] = at::get_num_threads(); };
  Trainer(parts_options(piped(2, {{"first", 0}, {"second", 1}}), 2)).fit(module, classes(16, 16));
  EXPECT_EQ(seen, (std::vector<int>{3, 3}));
  EXPECT_EQ(at::get_num_threads(), 6);
  at::set_num_threads(before);
}

TEST(Pipeline, TheStepsOwnPartsBetweenAndAroundTheStagesGetTheirGradients) {
  // The input of the first part needs a gradient too, and the first part's result is used twice.
  class Skipping : public PartedModule {
   public:
    at::Tensor forward(const at::Tensor& x) override {
      const at::Tensor hidden = levin::call(encoder, x * 2).exp();
      return levin::call(decoder, hidden) + hidden.narrow(1, 0, 3).tanh();
    }
  };
  const auto run = [](std::shared_ptr<Strategy> strategy, int64_t devices) {
    Skipping module;
    Trainer(parts_options(std::move(strategy), devices)).fit(module, classes(48, 16));
    return weights(module);
  };
  EXPECT_TRUE(torch::allclose(run(piped(4), 2), run(std::make_shared<SingleDeviceStrategy>(), 1), 1e-5, 1e-6));
}

TEST(Pipeline, EvaluationAndPredictionTakeWholeBatches) {
  PartedModule module;
  const auto expected =
      Trainer(parts_options(std::make_shared<SingleDeviceStrategy>(), 1)).predict(module, {classes(8, 4)});
  const auto found = Trainer(parts_options(piped(4), 2)).predict(module, {classes(8, 4)});
  for (size_t k = 0; k < 2; ++k) EXPECT_TRUE(found[0][k].equal(expected[0][k]));
}

// ---- what cannot be ------------------------------------------------------------------------------------------------

std::string failure(PartedModule& module, int64_t micro_batches = 4) {
  return error_of([&] { Trainer(parts_options(piped(micro_batches), 2)).fit(module, classes(16, 16)); });
}

TEST(Pipeline, AStepThatCallsThePartsInADifferentWayIsAnError) {
  PartedModule direct;
  direct.direct = true;
  expect_parts(failure(direct), {"the step has not called decoder", "in registration order: encoder, decoder",
                                 "levin::call(module, x)"});
  struct Twice : PartedModule {
    at::Tensor forward(const at::Tensor& x) override {
      return levin::call(decoder, levin::call(encoder, levin::call(encoder, x)));
    }
  };
  Twice twice;
  expect_parts(failure(twice), {"the step called encoder where decoder was expected"});
}

TEST(Pipeline, AParameterOfNoStageIsAnError) {
  struct WithHead : PartedModule {
    torch::nn::Linear head{register_module("head", torch::nn::Linear(3, 3))};
  };
  WithHead module;
  expect_parts(failure(module), {"head.weight belongs to no part", "every parameter that is trained"});
  for (auto& parameter : module.head->parameters()) parameter.set_requires_grad(false);
  EXPECT_EQ(failure(module), "");
}

TEST(Pipeline, AnExceptionInTheStepOrInAPartEndsItAndIsThrown) {
  PartedModule between;
  between.on_encode = [] { throw std::runtime_error("a fault between the parts"); };
  expect_parts(failure(between), {"a fault between the parts"});
  struct Wrong : PartedModule {
    at::Tensor forward(const at::Tensor& x) override {
      return levin::call(decoder, levin::call(encoder, x).narrow(1, 0, 5));
    }
  };
  Wrong wrong;
  expect_parts(failure(wrong), {"training_step", "4x5"});
  struct NoGraph : PartedModule {
    at::Tensor training_step(const Batch& batch, int64_t) override { return forward(batch[0]).sum().detach(); }
  };
  NoGraph none;
  expect_parts(failure(none), {"the loss has no gradient"});
}

TEST(Pipeline, ALossThatIsNotFiniteStopsTheRunBeforeTheUpdate) {
  struct Infinite : PartedModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      return PartedModule::training_step(batch, batch_idx) * std::numeric_limits<float>::infinity();
    }
  };
  Infinite module;
  const at::Tensor before = weights(module);
  expect_parts(failure(module), {"the loss is inf"});
  EXPECT_TRUE(weights(module).equal(before));
}

}  // namespace
}  // namespace levin::pipeline_test
