// How schedulers meet optimizers: attaching, composing, states that do not fit, errors.
#include "optim/support.h"

namespace levin::lr_scheduler_test {
namespace {

using testing::expect_error;

SGD make_sgd(double lr = 0.1) {
  return SGD(std::vector<at::Tensor>{at::ones({2})}, {.lr = lr, .momentum = 0.9});
}

SGD two_groups() {
  return SGD(std::vector<ParamGroup>{{.params = {at::ones({2})}}, {.params = {at::ones({2})}, .lr = 0.02}},
             {.lr = 0.1});
}

double lr_of(const Optimizer& optimizer) {
  return optimizer.param_groups()[0].lr;
}

TEST(LRScheduler, AttachesAtOnceOrLater) {
  SGD first = make_sgd();
  SGD second = make_sgd();
  LinearLR at_once(first, {.start_factor = 0.5});
  LinearLR later({.start_factor = 0.5});
  EXPECT_FALSE(later.attached());
  EXPECT_EQ(later.last_epoch, -1);
  later.attach(second);
  EXPECT_EQ(lr_of(first), 0.05);
  EXPECT_EQ(lr_of(second), 0.05);
  EXPECT_EQ(later.last_epoch, 0);
  EXPECT_EQ(first.param_groups()[0].initial_lr, 0.1);
}

TEST(LRScheduler, KeepsTheInitialLrOfTheFirstScheduler) {
  SGD optimizer = make_sgd();
  LinearLR warmup(optimizer, {.start_factor = 0.5});
  LambdaLR flat(optimizer, [](int64_t) { return 1.0; });
  EXPECT_EQ(lr_of(optimizer), 0.1);
}

TEST(LRScheduler, ReportsWhyItCannotAttachOrStep) {
  SGD optimizer = make_sgd();
  StepLR scheduler({.step_size = 2});
  expect_error<Error>([&] { scheduler.step(); }, {"StepLR", "no optimizer is attached", "attach(optimizer)"});
  SGD empty;
  expect_error<Error>([&] { scheduler.attach(empty); }, {"StepLR", "SGD has no parameters"});
  EXPECT_FALSE(scheduler.attached());
  scheduler.attach(optimizer);
  expect_error<Error>([&] { scheduler.attach(optimizer); }, {"StepLR", "attached already", "each"});

  ReduceLROnPlateau plateau(optimizer, {});
  EXPECT_TRUE(plateau.wants_metric());
  expect_error<Error>([&] { plateau.step(); }, {"ReduceLROnPlateau", "metric", "monitor"});
}

TEST(LRScheduler, IgnoresAMetricItDoesNotFollow) {
  SGD optimizer = make_sgd();
  ExponentialLR scheduler(optimizer, {.gamma = 0.5});
  scheduler.step(3.0);
  EXPECT_EQ(lr_of(optimizer), 0.05);
}

TEST(LRScheduler, RefusesListsThatDoNotFitTheGroups) {
  SGD optimizer = two_groups();
  OneCycleLR one({.max_lr = std::vector<double>{0.1, 0.2, 0.3}, .total_steps = 5});
  expect_error<Error>([&] { one.attach(optimizer); }, {"OneCycleLR.max_lr", "3 values", "2 parameter groups"});
  EXPECT_EQ(lr_of(optimizer), 0.1);
  ReduceLROnPlateau plateau({.min_lr = std::vector<double>{0.1}});
  expect_error<Error>([&] { plateau.attach(optimizer); }, {"ReduceLROnPlateau.min_lr", "has 1 value,"});
  LambdaLR lambdas(std::vector<LambdaLR::Function>{[](int64_t) { return 1.0; }});
  expect_error<Error>([&] { lambdas.attach(optimizer); }, {"LambdaLR", "1 function,", "2 parameter groups"});
}

TEST(LRScheduler, RefusesTheStateOfAnother) {
  SGD optimizer = make_sgd();
  StepLR step(optimizer, {.step_size = 2});
  ExponentialLR exponential(optimizer, {.gamma = 0.5});
  expect_error<CheckpointError>([&] { step.load_state_dict(exponential.state_dict()); },
                                {"StepLR", "belongs to ExponentialLR"});
  SGD two = two_groups();
  StepLR of_two(two, {.step_size = 2});
  expect_error<CheckpointError>([&] { step.load_state_dict(of_two.state_dict()); },
                                {"StepLR", "2 parameter groups", "had 1"});
  expect_error<CheckpointError>([&] { step.load_state_dict(State{}); }, {"name"});

  SGD other = make_sgd();
  ChainedScheduler one(other, {std::make_shared<StepLR>(StepLROptions{.step_size = 2})});
  SGD third = make_sgd();
  ChainedScheduler both(third, {std::make_shared<StepLR>(StepLROptions{.step_size = 2}),
                                std::make_shared<ExponentialLR>(ExponentialLROptions{.gamma = 0.5})});
  expect_error<CheckpointError>([&] { both.load_state_dict(one.state_dict()); }, {"ChainedScheduler", "2 schedulers"});
  expect_error<CheckpointError>([&] { one.load_state_dict(both.state_dict()); },
                                {"ChainedScheduler", "1 scheduler as"});
}

TEST(LambdaLR, MultipliesTheInitialLr) {
  SGD optimizer = two_groups();
  LambdaLR scheduler(optimizer,
                     {[](int64_t step) { return 1.0 / (1 + step); }, [](int64_t step) { return 2.0 * step; }});
  EXPECT_EQ(scheduler.get_last_lr(), (std::vector<double>{0.1, 0.0}));
  scheduler.step();
  scheduler.step();
  EXPECT_EQ(scheduler.get_last_lr(), (std::vector<double>{0.1 / 3, 0.02 * 4}));
}

TEST(LambdaLR, ContinuesFromItsState) {
  SGD optimizer = make_sgd();
  LambdaLR scheduler(optimizer, [](int64_t step) { return std::pow(0.9, step); });
  for (int i = 0; i < 3; ++i) scheduler.step();
  SGD other = make_sgd();
  LambdaLR resumed(other, [](int64_t step) { return std::pow(0.9, step); });
  resumed.load_state_dict(scheduler.state_dict());
  scheduler.step();
  resumed.step();
  EXPECT_EQ(lr_of(optimizer), lr_of(other));
}

TEST(OneCycleLR, TakesEpochsTimesSteps) {
  SGD a = make_sgd();
  SGD b = make_sgd();
  OneCycleLR total(a, {.max_lr = 0.5, .total_steps = 20});
  OneCycleLR product(b, {.max_lr = 0.5, .epochs = 4, .steps_per_epoch = 5});
  for (int i = 0; i < 19; ++i) {
    total.step();
    product.step();
    ASSERT_EQ(lr_of(a), lr_of(b));
  }
  EXPECT_NEAR(lr_of(a), 0.5 / 25 / 1e4, 1e-15);
}

TEST(OneCycleLR, NamesWhatIsMissingOrExceeded) {
  SGD optimizer = make_sgd();
  OneCycleLR unknown({.max_lr = 0.5, .epochs = 4});
  expect_error<ConfigError>([&] { unknown.attach(optimizer); }, {"total_steps", "epochs and steps_per_epoch"});
  OneCycleLR two(optimizer, {.max_lr = 0.5, .total_steps = 2});
  two.step();
  two.step();
  expect_error<Error>([&] { two.step(); }, {"OneCycleLR", "stepped 3 times", "2 steps", "total_steps"});

  Adagrad adagrad(std::vector<at::Tensor>{at::ones({1})}, {.lr = 0.3});
  OneCycleLR cycles({.max_lr = 0.5, .total_steps = 5});
  expect_error<Error>([&] { cycles.attach(adagrad); }, {"OneCycleLR.cycle_momentum", "Adagrad", "false"});
  EXPECT_EQ(adagrad.param_groups()[0].lr, 0.3);
}

TEST(OneCycleLR, MovesBeta1OfAdam) {
  Adam adam(std::vector<at::Tensor>{at::ones({1})});
  OneCycleLR scheduler(adam, {.max_lr = 0.5, .total_steps = 11, .pct_start = 0.5});
  EXPECT_EQ(adam.param_groups()[0].momentum, 0.95);
  for (int i = 0; i < 5; ++i) scheduler.step();
  EXPECT_LT(adam.param_groups()[0].momentum, 0.87);
}

TEST(CyclicLR, TakesAFunctionForItsHeight) {
  SGD optimizer = make_sgd();
  CyclicLR scheduler({.base_lr = 0.0, .max_lr = 1.0, .step_size_up = 2, .cycle_momentum = false},
                     [](double cycle) { return 1 / cycle; });
  scheduler.attach(optimizer);
  std::vector<double> lrs = {lr_of(optimizer)};
  for (int i = 0; i < 7; ++i) {
    scheduler.step();
    lrs.push_back(lr_of(optimizer));
  }
  EXPECT_EQ(lrs, (std::vector<double>{0, 0.5, 1, 0.5, 0, 0.25, 0.5, 0.25}));
  EXPECT_EQ(optimizer.param_groups()[0].momentum, 0.9);
}

TEST(SequentialLR, TakesSchedulersAttachedOrNot) {
  SGD a = make_sgd();
  SGD b = make_sgd();
  SequentialLR loose(a, {std::make_shared<LinearLR>(), std::make_shared<StepLR>(StepLROptions{.step_size = 2})}, {3});
  auto warmup = std::make_shared<LinearLR>(b, LinearLROptions{});
  auto decay = std::make_shared<StepLR>(b, StepLROptions{.step_size = 2});
  SequentialLR attached(b, {warmup, decay}, {3});
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(lr_of(a), lr_of(b)) << i;
    loose.step();
    attached.step();
  }
  EXPECT_NEAR(lr_of(a), 0.1 * 1e-3, 1e-15);  // decays at 5, 7 and 9
}

// 2 steps constant at half, then a chain of two decays that starts anew from the initial lr.
TEST(SequentialLR, RestartsAChainAtItsMilestone) {
  SGD optimizer = make_sgd(1.0);
  auto chain = std::make_shared<ChainedScheduler>(
      optimizer, Schedulers{std::make_shared<ConstantLR>(ConstantLROptions{.factor = 0.5, .total_iters = 2}),
                            std::make_shared<ExponentialLR>(ExponentialLROptions{.gamma = 0.1})});
  SequentialLR scheduler(optimizer, {std::make_shared<LambdaLR>([](int64_t) { return 0.25; }), chain}, {2});
  std::vector<double> lrs = {lr_of(optimizer)};
  for (int i = 0; i < 4; ++i) {
    scheduler.step();
    lrs.push_back(lr_of(optimizer));
  }
  const std::vector<double> expected = {0.25, 0.25, 0.5, 0.05, 0.01};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(lrs[i], expected[i], 1e-15) << i;
}

TEST(ComposedSchedulers, RefuseWrongParts) {
  SGD optimizer = make_sgd();
  SGD other = make_sgd();
  auto step = [] { return std::make_shared<StepLR>(StepLROptions{.step_size = 2}); };
  expect_error<Error>(
      [&] {
        SequentialLR s(optimizer, {step(), step()}, {});
      },
      {"SequentialLR.milestones", "0 values", "2 schedulers", "one milestone less"});
  expect_error<Error>([&] { SequentialLR s(optimizer, {step(), step(), step()}, {5, 3}); }, {"milestones", "rising"});
  expect_error<Error>([&] { SequentialLR s(optimizer, {}, {}); }, {"SequentialLR", "no schedulers"});
  expect_error<Error>(
      [&] {
        ChainedScheduler s(optimizer, {step(), std::make_shared<ReduceLROnPlateau>()});
      },
      {"ChainedScheduler.schedulers[1]", "ReduceLROnPlateau", "metric"});
  expect_error<Error>([&] { ChainedScheduler s(optimizer, {nullptr}); }, {"schedulers[0]", "null"});
  auto foreign = std::make_shared<StepLR>(other, StepLROptions{.step_size = 2});
  expect_error<Error>(
      [&] {
        ChainedScheduler s(optimizer, {step(), foreign});
      },
      {"ChainedScheduler.schedulers[1]", "StepLR", "another optimizer"});
}

TEST(ComposedSchedulers, ReportAllMistakesOfTheirPartsTogether) {
  expect_error<ConfigError>(
      [] {
        static_cast<void>(testing::make<LRScheduler>(
            "ChainedScheduler",
            {{"schedulers", {{{"StepLR", {{"step_size", -1}}}}, {{"StepLr", nlohmann::json::object()}}}}}));
      },
      {"schedulers[0].init_args.step_size", "-1", "schedulers[1]", "StepLr", "Did you mean \"StepLR\""});
}

// A metric that stays the same does not improve, regardless of its sign; one that changes by more than the threshold
// does.
TEST(ReduceLROnPlateau, FollowsAMetricBelow0AsOneAbove) {
  for (const auto mode : {PlateauMode::min, PlateauMode::max}) {
    for (const double start : {-1.0, -1e-6, 1e-6, 1.0}) {
      const double better = (mode == PlateauMode::min ? -1 : 1) * std::abs(start);
      SGD optimizer = make_sgd();
      const double lr = lr_of(optimizer);
      ReduceLROnPlateau scheduler(optimizer, {.mode = mode, .patience = 0, .threshold = 0.01});
      scheduler.step(start);
      scheduler.step(start + 0.011 * better);
      EXPECT_EQ(lr_of(optimizer), lr) << start;
      scheduler.step(start + 0.011 * better);
      EXPECT_NEAR(lr_of(optimizer), 0.1 * lr, 1e-12) << start;
      scheduler.step(start + 0.015 * better);  // by less than the threshold
      EXPECT_NEAR(lr_of(optimizer), 0.01 * lr, 1e-12) << start;
    }
  }
}

TEST(ReduceLROnPlateau, StopsAtItsLowestLr) {
  SGD optimizer = make_sgd();
  ReduceLROnPlateau scheduler(optimizer, {.factor = 0.1, .patience = 0, .min_lr = 0.005});
  for (int i = 0; i < 5; ++i) scheduler.step(1.0);
  EXPECT_EQ(lr_of(optimizer), 0.005);
  EXPECT_EQ(scheduler.last_epoch, 5);
}

}  // namespace
}  // namespace levin::lr_scheduler_test
