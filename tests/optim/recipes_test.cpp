// What recorded numbers do not show of Muon, LARS, LAMB, schedule-free AdamW, SAM, Lookahead and CosineWithWarmup.
#include <ATen/ops/linalg_svdvals.h>

#include <numbers>

#include "optim/support.h"

namespace levin::recipes_test {
namespace {

using testing::expect_error;
using testing::make_params;
using testing::train_step;

std::vector<at::Tensor> values_of(const std::vector<at::Tensor>& params) {
  std::vector<at::Tensor> copies;
  for (const auto& param : params) copies.push_back(param.detach().clone());
  return copies;
}

nlohmann::json around(const std::string& name, const nlohmann::json& init_args) {
  return {{"optimizer", {{"class_path", name}, {"init_args", init_args}}}};
}

// ---- Muon ---------------------------------------------------------------------------------------------------------

TEST(Muon, MovesSingularValuesTowardsOne) {
  const at::Tensor matrix = at::arange(40, at::kFloat).mul_(0.7).sin_().reshape({8, 5}) + at::eye(8, 5);
  const auto coefficients = MuonOptions{}.ns_coefficients;
  for (const at::Tensor& one : {matrix, matrix.t().contiguous()}) {
    const at::Tensor result = detail::orthogonalize(one, coefficients, 5, 1e-7);
    ASSERT_EQ(result.sizes(), one.sizes());
    const at::Tensor sizes = at::linalg_svdvals(result.to(at::kFloat));
    EXPECT_GT(sizes.min().item<double>(), 0.5) << sizes;
    EXPECT_LT(sizes.max().item<double>(), 1.3) << sizes;
  }
}

TEST(Muon, UpdatesWhatAdamWIsGivenAsAdamWDoes) {
  auto params = make_params(), expected = make_params();
  Muon muon({{"a", params[0]}, {"b", params[1]}, {"c", params[2]}},
            {.lr = 0.1, .weight_decay = 0.2, .adamw_params = {"?"}, .adamw_lr = 0.03});
  AdamW adamw(expected, {.lr = 0.03, .betas = {0.9, 0.95}, .weight_decay = 0.2});
  for (int i = 0; i < 5; ++i) {
    train_step(muon, params);
    train_step(adamw, expected);
    for (size_t k = 0; k < params.size(); ++k) ASSERT_TRUE(at::allclose(params[k], expected[k], 1e-10, 1e-12));
  }
}

TEST(Muon, ScalesBothStepSizesWithTheGroups) {
  auto params = make_params(), expected = make_params();
  Muon muon(params, {.lr = 0.1, .adamw_lr = 0.03});
  Muon half(expected, {.lr = 0.05, .adamw_lr = 0.015});
  muon.param_groups()[0].lr *= 0.5;
  for (int i = 0; i < 3; ++i) {
    train_step(muon, params);
    train_step(half, expected);
  }
  for (size_t k = 0; k < params.size(); ++k) EXPECT_TRUE(at::allclose(params[k], expected[k], 1e-10, 1e-12));
}

TEST(Muon, NamesThePatternThatMatchesNothingAndNeedsNames) {
  auto params = make_params();
  const NamedTensors named = {{"embedding.weight", params[0]}};
  expect_error<ConfigError>([&] { Muon(named, {.adamw_params = {"embeding.*"}}); },
                            {"MuonOptions.adamw_params", "\"embeding.*\"", "Parameters: embedding.weight."});
  Muon muon(params, {.adamw_params = {"a"}});
  expect_error<Error>([&] { train_step(muon, params); }, {"Muon: adamw_params", "names", "take_names()"});
}

// ---- LARS and LAMB --------------------------------------------------------------------------------------------------

TEST(LAMB, TakesStepsOfTheSizeOfTheWeights) {
  for (const double scale : {1e-3, 1.0, 1e3}) {
    const at::Tensor weights = (at::arange(1, 13, at::kDouble).reshape({3, 4}) * scale).requires_grad_(true);
    const double size = weights.norm().item<double>();
    LAMB lamb({weights}, {.lr = 0.01});
    const at::Tensor before = weights.detach().clone();
    weights.mutable_grad() = at::ones({3, 4}, at::kDouble) * 123;
    lamb.step();
    EXPECT_NEAR((weights - before).norm().item<double>(), 0.01 * size, 1e-9 * size);
  }
}

TEST(LARS, IsPlainSGDForLayersWithoutWeightsOrGradient) {
  for (const double start : {0.0, 2.0}) {
    const at::Tensor weights = at::full({3, 4}, start, at::kDouble).requires_grad_(true);
    LARS lars({weights}, {.lr = 0.5, .momentum = 0});
    weights.mutable_grad() = at::full({3, 4}, start == 0 ? 1.0 : 0.0, at::kDouble);
    lars.step();
    EXPECT_TRUE(at::allclose(weights, at::full({3, 4}, start == 0 ? -0.5 : 2.0, at::kDouble)));
  }
}

// ---- schedule-free --------------------------------------------------------------------------------------------------

TEST(ScheduleFreeAdamW, RestoresTheTrainedWeightsBitwise) {
  auto params = make_params(at::kFloat), other = make_params(at::kFloat);
  ScheduleFreeAdamW watched(params, {.lr = 0.05}), alone(other, {.lr = 0.05});
  watched.eval();  // nothing is averaged yet
  EXPECT_TRUE(testing::bitwise_equal(params, other));
  watched.train();
  for (int i = 0; i < 6; ++i) {
    train_step(watched, params);
    train_step(alone, other);
    watched.eval();
    watched.eval();
    EXPECT_FALSE(i > 0 && testing::bitwise_equal(params, other));
    watched.train();
    ASSERT_TRUE(testing::bitwise_equal(params, other)) << i;
  }
}

TEST(ScheduleFreeAdamW, DoesNotStepFromTheAverage) {
  auto params = make_params();
  ScheduleFreeAdamW optimizer(params, {});
  train_step(optimizer, params);
  optimizer.eval();
  expect_error<Error>([&] { train_step(optimizer, params); }, {"ScheduleFreeAdamW", "average", "train()"});
}

// ---- SAM and Lookahead ----------------------------------------------------------------------------------------------

TEST(SAM, WithoutADistanceIsTheInnerOptimizer) {
  auto params = make_params(), expected = make_params();
  SAM sam(SGD(params, {.lr = 0.1, .momentum = 0.9}), {.rho = 0});
  SGD sgd(expected, {.lr = 0.1, .momentum = 0.9});
  for (int i = 0; i < 4; ++i) {
    train_step(sam, params);
    train_step(sgd, expected);
  }
  EXPECT_TRUE(testing::bitwise_equal(params, expected));
}

TEST(SAM, PutsTheWeightsBackWhenTheSecondPassFails) {
  auto params = make_params();
  const auto before = values_of(params);
  SAM sam(SGD(params, {.lr = 0.1}), {});
  int passes = 0;
  EXPECT_THROW(sam.step([&]() -> at::Tensor {
    if (++passes == 2) throw std::runtime_error("no memory");
    auto loss = testing::loss_of(params);
    loss.backward();
    return loss;
  }),
               std::runtime_error);
  EXPECT_EQ(passes, 2);
  EXPECT_TRUE(testing::bitwise_equal(params, before));
}

TEST(WrappingOptimizer, TakesItsSettingsFromTheInnerOptimizerAndItsGroups) {
  auto params = make_params();
  auto sam = testing::make<Optimizer>("SAM", around("SGD", {{"lr", 0.3}, {"momentum", 0.8}, {"weight_decay", 0.1}}));
  sam->add_param_group({.params = {params[0]}, .lr = 0.7});
  sam->add_param_group({.params = {params[1]}});
  EXPECT_EQ(sam->param_groups()[0].lr, 0.7);
  EXPECT_EQ(sam->param_groups()[1].lr, 0.3);
  EXPECT_EQ(sam->param_groups()[1].momentum, 0.8);
  EXPECT_EQ(sam->param_groups()[1].weight_decay, 0.1);
  const Lookahead wrapped(SGD(params, {.lr = 0.25}), {.k = 2});
  EXPECT_EQ(wrapped.param_groups()[0].lr, 0.25);
  EXPECT_EQ(to_yaml(wrapped.written_options()).find("class_path: SGD") != std::string::npos, true);
}

TEST(WrappingOptimizer, SendsChangedLearningRatesToTheInnerOptimizer) {
  auto params = make_params(), expected = make_params();
  Lookahead outer(SGD(params, {.lr = 0.1}), {.k = 100});
  SGD sgd(expected, {.lr = 0.02});
  outer.param_groups()[0].lr = 0.02;
  train_step(outer, params);
  train_step(sgd, expected);
  EXPECT_TRUE(testing::bitwise_equal(params, expected));
}

TEST(WrappingOptimizer, RefusesWhatCannotBeWrapped) {
  const auto refuse = [](const nlohmann::json& args, const std::vector<std::string>& parts) {
    expect_error<ConfigError>([&] { static_cast<void>(testing::make<Optimizer>("Lookahead", args)); }, parts);
  };
  refuse({{"k", 5}}, {"optimizer", "set"});
  refuse(around("LBFGS", {{"lr", 1.0}}), {"Lookahead.optimizer: LBFGS evaluates the loss several times"});
  refuse(around("ScheduleFreeAdamW", {{"lr", 0.1}}), {"Lookahead.optimizer: ScheduleFreeAdamW keeps an average"});
}

TEST(WrappingOptimizer, RefusesStateAroundADifferentOptimizer) {
  auto params = make_params();
  Lookahead around_sgd(SGD(params, {.lr = 0.1}), {});
  Lookahead around_adam(AdamW(params, {.lr = 0.1}), {});
  expect_error<CheckpointError>([&] { around_adam.load_state_dict(around_sgd.state_dict()); },
                                {"Lookahead: ", "around SGD", "around AdamW"});
}

TEST(WrappingOptimizer, ChangesNothingWhenTheInnerStateDoesNotFit) {
  auto params = make_params();
  Lookahead optimizer(AdamW(params, {.lr = 0.1}), {});
  train_step(optimizer, params);
  State broken = optimizer.state_dict();
  broken.tensors["0.exp_avg"] = at::zeros({7}, at::kDouble);
  const State before = optimizer.state_dict();
  expect_error<CheckpointError>([&] { optimizer.load_state_dict(broken); }, {"AdamW: saved \"0.exp_avg\" has shape"});
  EXPECT_TRUE(at::equal(optimizer.state_dict().tensor("0.slow"), before.tensor("0.slow")));
  EXPECT_TRUE(optimizer.state_dict().values.same_as(before.values));
}

TEST(WholeTensorUpdate, LooksThroughLookahead) {
  EXPECT_TRUE(Lookahead(LARS(make_params(), {.lr = 0.1}), {}).updates_whole_tensors());
  EXPECT_FALSE(Lookahead(SGD(make_params(), {.lr = 0.1}), {}).updates_whole_tensors());
}

// ---- CosineWithWarmup -----------------------------------------------------------------------------------------------

TEST(CosineWithWarmup, FollowsItsClosedFormInSharesOfTheRun) {
  SGD optimizer(std::vector<ParamGroup>{{.params = {at::ones({2})}, .lr = 0.4}, {.params = {at::ones({1})}, .lr = 2}},
                {});
  CosineWithWarmup scheduler({.warmup = Period("0.1dur"), .start_factor = 0, .eta_min = 0.01});
  EXPECT_TRUE(scheduler.wants_total_steps());
  scheduler.fill_total_steps(200);
  scheduler.attach(optimizer);
  for (int step = 0; step <= 210; ++step) {
    for (const auto& group : optimizer.param_groups()) {
      const double way = std::min(1.0, (step - 20) / 180.0);
      const double want = step < 20 ? group.initial_lr * step / 20
                                    : 0.01 + (group.initial_lr - 0.01) * (1 + std::cos(std::numbers::pi * way)) / 2;
      ASSERT_NEAR(group.lr, want, 1e-12) << step;
    }
    scheduler.step();
  }
}

TEST(CosineWithWarmup, RefusesAWarmupItCannotMeasure) {
  SGD optimizer({at::ones({2})}, {.lr = 1});
  expect_error<ConfigError>([&] { CosineWithWarmup({.warmup = Period("2ep")}); },
                            {"CosineWithWarmupOptions.warmup", "0.05dur"});
  expect_error<ConfigError>([&] { CosineWithWarmup(optimizer, {}); }, {"CosineWithWarmup.total_steps", "Set it"});
  expect_error<ConfigError>([&] { CosineWithWarmup(optimizer, {.warmup = 11, .total_steps = 10}); },
                            {"CosineWithWarmup.warmup: 11 is more than the 10 times", "interval: epoch"});
}

}  // namespace
}  // namespace levin::recipes_test
