// FabricOptimizer.select_rows: parameters whose number of rows changes while they are trained.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>

#include "levin/callbacks/weight_averaging.h"
#include "levin/optim/adafactor.h"
#include "levin/optim/adam.h"
#include "levin/optim/lookahead.h"
#include "levin/optim/reduce_lr_on_plateau.h"
#include "levin/optim/schedule_free_adamw.h"
#include "levin/optim/sgd.h"
#include "levin/optim/step_schedulers.h"
#include "levin/trainer/fabric.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::fabric_rows_test {
namespace {

using namespace test;

constexpr int64_t kSteps = 30, kSelected = 12;  // steps in all, and before the rows are selected

// A sum of bumps, a row for each.
struct Bumps : torch::nn::Module {
  torch::Tensor places = register_parameter("places", torch::linspace(-1, 1, 8).view({4, 2}));
  torch::Tensor heights = register_parameter("heights", torch::linspace(0.1, 0.4, 4).view({4, 1}));
  torch::Tensor bias = register_parameter("bias", torch::zeros({1}));
  int64_t calls = 0;

  at::Tensor loss(const Batch& batch) {
    ++calls;
    return torch::mse_loss((batch[0].matmul(places.t()).tanh().matmul(heights) + bias), batch[1]);
  }
};

Batch data() {
  return {torch::linspace(-2, 2, 20).view({10, 2}), torch::linspace(-1, 1, 10).view({10, 1})};
}

// Row 1 is removed, and row 3 split in two new ones.
torch::Tensor rows() {
  return torch::tensor({0, 2, 3, 3}, torch::kLong);
}
constexpr int64_t kKept = 2;

void select(FabricOptimizer& optimizer, const Bumps& bumps) {
  optimizer.select_rows({bumps.places, bumps.heights}, rows(), kKept);
  const torch::NoGradGuard no_grad;
  bumps.places.narrow(0, kKept, 2).mul_(torch::tensor({{1.1}, {0.9}}));
}

struct Outcome {
  std::vector<at::Tensor> weights = {};
  int64_t calls_before = 0;  // of the closure, until the rows were selected
  int64_t calls_after = 0;
};

template <class MakeOptimizer>
Outcome train(const FabricOptions& options, const MakeOptimizer& make) {
  Bumps bumps;
  FabricOptions own = options;
  own.num_threads = 1;
  Fabric fabric(own);
  FabricOptimizer optimizer = fabric.setup(bumps, make(bumps.parameters()));
  Outcome outcome;
  for (int64_t k = 0; k < kSteps; ++k) {
    if (k == kSelected) {
      select(optimizer, bumps);
      outcome.calls_before = bumps.calls;
    }
    (void)fabric.step(data(), [&](const Batch& batch) { return bumps.loss(batch); });
  }
  outcome.calls_after = bumps.calls - outcome.calls_before;
  for (const at::Tensor& parameter : bumps.parameters()) outcome.weights.push_back(parameter.detach().clone());
  return outcome;
}

void expect_equal(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  ASSERT_EQ(some.size(), others.size());
  for (size_t k = 0; k < some.size(); ++k) EXPECT_TRUE(torch::equal(some[k], others[k])) << "parameter " << k;
}

const auto kAdam = [](const std::vector<at::Tensor>& parameters) { return Adam(parameters, {.lr = 0.05}); };

// LibTorch's optimizer, whose state the test replaces.
std::vector<at::Tensor> by_hand() {
  using torch::optim::AdamParamState;
  Bumps bumps;
  torch::optim::Adam optimizer(bumps.parameters(), 0.05);
  auto& parameters = optimizer.param_groups()[0].params();
  const auto selected = [](const at::Tensor& state, int64_t zeros) {
    at::Tensor all = state.index_select(0, rows());
    all.slice(0, zeros).zero_();
    return all;
  };
  for (int64_t k = 0; k < kSteps; ++k) {
    for (size_t i = 0; k == kSelected && i < 2; ++i) {
      const auto found = optimizer.state().find(parameters[i].unsafeGetTensorImpl());
      auto state = std::make_unique<AdamParamState>(static_cast<AdamParamState&>(*found->second));
      state->exp_avg(selected(state->exp_avg(), kKept));
      state->exp_avg_sq(selected(state->exp_avg_sq(), kKept));
      optimizer.state().erase(found);
      parameters[i] = selected(parameters[i].detach(), 4).requires_grad_();
      optimizer.state()[parameters[i].unsafeGetTensorImpl()] = std::move(state);
      (i == 0 ? bumps.places : bumps.heights) = parameters[i];
    }
    if (k == kSelected) {
      const torch::NoGradGuard no_grad;
      bumps.places.narrow(0, kKept, 2).mul_(torch::tensor({{1.1}, {0.9}}));
    }
    optimizer.zero_grad();
    bumps.loss(data()).backward();
    optimizer.step();
  }
  return {bumps.places.detach(), bumps.heights.detach(), bumps.bias.detach()};
}

TEST(FabricRows, EndWithTheWeightsOfStateThatIsReplacedByHand) {
  expect_equal(train({}, [](const auto& parameters) { return torch::optim::Adam(parameters, 0.05); }).weights,
               by_hand());
}

TEST(FabricRows, StepsAreRecordedAgain) {
  const Outcome eager = train({}, kAdam), recorded = train({.record_steps = true}, kAdam);
  expect_equal(recorded.weights, eager.weights);
  EXPECT_LT(recorded.calls_before, kSelected);
  EXPECT_LT(recorded.calls_after, kSteps - kSelected);
}

TEST(FabricRows, MoreRowsAreRecordedAgainAsOftenAsTheyChange) {
  const auto grow = [](bool record) {
    Bumps bumps;
    Fabric fabric({.record_steps = record, .num_threads = 1});
    FabricOptimizer optimizer = fabric.setup(bumps, SGD(bumps.parameters(), {.lr = 0.01, .momentum = 0.9}));
    for (int64_t k = 0; k < 120; ++k) {
      const int64_t count = bumps.places.size(0);
      const at::Tensor grown = torch::cat({torch::arange(count), torch::zeros({1}, torch::kLong)});
      if (k % 10 == 9) optimizer.select_rows({bumps.places, bumps.heights}, grown, count);
      (void)fabric.step(data(), [&](const Batch& batch) { return bumps.loss(batch); });
    }
    EXPECT_EQ(bumps.places.size(0), 16);
    EXPECT_LE(bumps.calls, record ? 99 : 120);
    return bumps.parameters();
  };
  expect_equal(grow(true), grow(false));
}

TEST(FabricRows, ACheckpointRestoresTheirNumber) {
  const TemporaryFolder folder;
  const std::string path = folder / "rows.ckpt";
  std::vector<at::Tensor> weights[2];
  for (const bool resumes : {false, true}) {
    Bumps bumps;
    Fabric fabric({.num_threads = 1});
    FabricOptimizer optimizer = fabric.setup(bumps, kAdam(bumps.parameters()));
    if (resumes) {
      (void)fabric.load(path);
      EXPECT_EQ(bumps.places.sizes(), (std::vector<int64_t>{5, 2}));
    }
    for (int64_t k = fabric.global_step(); k < 20; ++k) {
      if (k == 6) optimizer.select_rows({bumps.places, bumps.heights}, torch::tensor({0, 1, 2, 3, 3}), 4);
      (void)fabric.step(data(), [&](const Batch& batch) { return bumps.loss(batch); });
      if (k == 10) fabric.save(path);
    }
    weights[resumes] = bumps.parameters();
  }
  expect_equal(weights[1], weights[0]);
}

TEST(FabricRows, MistakesAreErrorsThatChangeNothing) {
  Bumps bumps;
  Fabric fabric({.accumulate_grad_batches = 2, .num_threads = 1});
  FabricOptimizer optimizer = fabric.setup(bumps, kAdam(bumps.parameters()));
  const auto error = [&](const std::vector<at::Tensor>& params, const at::Tensor& which, int64_t kept) {
    return error_of<Error>([&] { optimizer.select_rows(params, which, kept); });
  };
  expect_parts(error({bumps.places}, torch::tensor({0, 4}), 1),
               {"FabricOptimizer.select_rows: Adam", "tensor 0, of shape (4, 2), has no row 4", "from 0 to 3"});
  expect_parts(error({bumps.places}, torch::tensor({-1}), 1), {"has no row -1"});
  expect_parts(error({bumps.places}, torch::tensor({0.0}), 1), {"rows must be indices", "int64"});
  expect_parts(error({bumps.places}, torch::tensor({0, 1}), 3), {"kept must be between 0 and the 2 rows, got 3"});
  expect_parts(error({torch::ones({4})}, torch::tensor({0}), 1), {"tensor 0 is not a parameter of this optimizer"});
  expect_parts(error({bumps.places, bumps.heights, bumps.places}, torch::tensor({0}), 1),
               {"tensor 2 is the same as tensor 0", "Give each tensor once"});
  (void)fabric.step(data(), [&](const Batch& batch) { return bumps.loss(batch); });
  expect_parts(error({bumps.places}, torch::tensor({0}), 1),
               {"gradients wait for an optimizer step", "after the optimizer"});
  EXPECT_EQ(bumps.places.size(0), 4);
  (void)fabric.step(data(), [&](const Batch& batch) { return bumps.loss(batch); });
  optimizer.select_rows({bumps.places, bumps.heights}, rows(), kKept);
}

TEST(FabricRows, StateThatNewRowsCannotHaveIsAnError) {
  const auto error_with = [](const auto& make) {
    Bumps bumps;
    Fabric fabric({.num_threads = 1});
    FabricOptimizer optimizer = fabric.setup(bumps, make(bumps.parameters()));
    (void)fabric.step(data(), [&](const Batch& batch) { return bumps.loss(batch); });
    return error_of<Error>([&] { optimizer.select_rows({bumps.places}, rows(), kKept); });
  };
  expect_parts(error_with([](const auto& parameters) { return Adafactor(parameters); }),
               {"Adafactor: its state", "does not have the shape", "such as Adam or SGD"});
  expect_parts(error_with([](const auto& parameters) { return ScheduleFreeAdamW(parameters); }),
               {"ScheduleFreeAdamW: its state holds weights", "such as Adam or SGD"});
  expect_parts(error_with([](const auto& parameters) { return Lookahead(SGD(parameters, {.lr = 0.1})); }),
               {"Lookahead: its state holds weights"});
}

TEST(FabricRows, ATensorOfTwoOptimizersIsAnErrorThatChangesNothing) {
  Bumps bumps;
  Fabric fabric({.num_threads = 1});
  OptimizerConfig both;
  both.add(kAdam(bumps.parameters()));
  both.add(SGD({bumps.bias, bumps.places}, {.lr = 0.01, .momentum = 0.9}));
  FabricOptimizer optimizer = fabric.setup(bumps, both);
  const auto step = [&] {
    fabric.backward(bumps.loss(data()));
    for (FabricOptimizer& each : fabric.optimizers()) each.step();
    for (FabricOptimizer& each : fabric.optimizers()) each.zero_grad();
  };
  step();
  expect_parts(
      error_of<Error>([&] {
        optimizer.select_rows({bumps.heights, bumps.places}, rows(), kKept);
      }),
      {"FabricOptimizer.select_rows: tensor 1 is also a parameter of another optimizer, SGD", "one optimizer"});
  EXPECT_EQ(bumps.heights.size(0), 4);
  step();
}

TEST(FabricRows, RowsThatAreChangedWithoutSelectRowsAreAnErrorOfTheNextStep) {
  for (const bool record : {false, true}) {
    Bumps bumps;
    Fabric fabric({.record_steps = record, .num_threads = 1});
    (void)fabric.setup(bumps, kAdam(bumps.parameters()));
    const auto step = [&] { (void)fabric.step(data(), [&](const Batch& batch) { return bumps.loss(batch); }); };
    for (int64_t k = 0; k < 6; ++k) step();
    bumps.places.mutable_grad().reset();
    bumps.heights.mutable_grad().reset();
    bumps.places.set_data(torch::ones({7, 2}));
    bumps.heights.set_data(torch::ones({7, 1}));
    expect_parts(error_of<Error>(step),
                 {"Fabric.step: Adam: tensor 0 has shape (7, 2), and its state (4, 2)", "select_rows"});
  }
}

// An epoch is a step, after which `between` is called.
template <class Scheduler>
double lr_after_epochs(Scheduler scheduler, const LRSchedulerOptions& options,
                       const std::function<void(FabricOptimizer&, Bumps&)>& between) {
  Bumps bumps;
  Fabric fabric({.num_threads = 1});
  FabricOptimizer optimizer =
      fabric.setup(bumps, {SGD(bumps.parameters(), {.lr = 1.0}), std::move(scheduler), options});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    (void)fabric.step(data(), [&](const Batch& batch) { return bumps.loss(batch) * 0.01; });
    between(optimizer, bumps);
    fabric.log("score", 1.0);
    fabric.end_epoch();
  }
  return optimizer.optimizer().param_groups()[0].lr;
}

TEST(FabricRows, SchedulesGoOn) {
  for (const bool refused : {false, true}) {
    const auto select = [&](FabricOptimizer& optimizer, Bumps& bumps) {
      if (!refused) return optimizer.select_rows({bumps.places, bumps.heights}, torch::arange(4), 4);
      EXPECT_THROW(optimizer.select_rows({bumps.places}, torch::tensor({99}), 1), Error);
    };
    EXPECT_EQ(lr_after_epochs(StepLR({.step_size = 1, .gamma = 0.5}), {.interval = Interval::epoch}, select), 0.125);
    EXPECT_EQ(lr_after_epochs(ReduceLROnPlateau({.factor = 0.5, .patience = 0}), {.monitor = "score"}, select), 0.25);
  }
}

TEST(FabricRows, AnOlderCheckpointGivesBackItsNumberInTheSameProcess) {
  const TemporaryFolder folder;
  Bumps bumps;
  Fabric fabric({.num_threads = 1});
  FabricOptimizer optimizer = fabric.setup(bumps, kAdam(bumps.parameters()));
  const auto step = [&] { (void)fabric.step(data(), [&](const Batch& batch) { return bumps.loss(batch); }); };
  step();
  fabric.save(folder / "old.ckpt");
  step();
  const std::vector<at::Tensor> after_two = {bumps.places.detach().clone(), bumps.heights.detach().clone()};
  optimizer.select_rows({bumps.places, bumps.heights}, torch::tensor({0, 1, 2, 3, 3}), 4);
  step();
  (void)fabric.load(folder / "old.ckpt");
  step();
  expect_equal({bumps.places, bumps.heights}, after_two);
}

TEST(FabricRows, ACheckpointWithOtherRowsThatIsRefusedChangesNothing) {
  const TemporaryFolder folder;
  Bumps bumps;
  Fabric fabric({.num_threads = 1});
  FabricOptimizer optimizer = fabric.setup(bumps, kAdam(bumps.parameters()));
  optimizer.select_rows({bumps.places, bumps.heights}, torch::arange(2), 2);
  fabric.save(folder / "rows.ckpt");
  Bumps other;
  other.bias.set_data(torch::zeros({3}));
  Fabric fresh({.num_threads = 1});
  (void)fresh.setup(other, kAdam(other.parameters()));
  const at::Tensor before = other.places.detach().clone();
  expect_parts(error_of<CheckpointError>([&] { (void)fresh.load(folder / "rows.ckpt"); }),
               {"rows.ckpt: its weights do not fit", "bias is (1) in the file and (3) in the module"});
  EXPECT_TRUE(torch::equal(other.places, before));
  EXPECT_EQ(other.heights.size(0), 4);
}

TEST(FabricRows, AnAverageOfTheWeightsIsAnError) {
  Bumps bumps;
  Fabric fabric({.callbacks = {EMAWeightAveraging({.decay = 0.9})}, .num_threads = 1});
  FabricOptimizer optimizer = fabric.setup(bumps, kAdam(bumps.parameters()));
  expect_parts(error_of<Error>([&] { optimizer.select_rows({bumps.places}, rows(), kKept); }),
               {"EMAWeightAveraging", "keeps an average of the weights, which new rows do not have"});
}

TEST(FabricRows, ARollbackGoesToACheckpointWithTheSameRowsAlone) {
  const TemporaryFolder folder;
  Bumps bumps;
  Fabric fabric({.nonfinite_loss = NonFiniteLoss::rollback, .num_threads = 1});
  FabricOptimizer optimizer = fabric.setup(bumps, kAdam(bumps.parameters()));
  const auto step = [&](double scale) {
    (void)fabric.step(data(), [&](const Batch& batch) { return bumps.loss(batch) * scale; });
  };
  const auto fail = [&] {
    for (int64_t k = 0; k < 3; ++k) step(k == 0 ? std::nan("") : 1);  // the loss may be judged late
  };
  step(1);
  fabric.save(folder / "old.ckpt");
  optimizer.select_rows({bumps.places, bumps.heights}, torch::tensor({3, 2, 1, 0}), 4);
  expect_parts(error_of<Error>(fail), {"every checkpoint is older than the last select_rows", "Save one after each"});
  fabric.save(folder / "new.ckpt");
  const at::Tensor saved = bumps.places.detach().clone();
  fail();
  EXPECT_FALSE(torch::equal(bumps.places, saved));
  EXPECT_TRUE(bumps.places.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace levin::fabric_rows_test
