// Groups, gradients that come and go, mixed types and layouts, closures.
#include "optim/support.h"

namespace levin::optimizer_test {
namespace {

using testing::expect_error;
using testing::make_params;
using testing::train_step;

void set_grad(const at::Tensor& param, double value) {
  param.mutable_grad() = at::full_like(param.detach(), value);
}

std::vector<std::string> batched_of_pytorch() {
  return {"SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam"};
}

std::vector<std::string> batched() {
  auto all = batched_of_pytorch();
  all.insert(all.end(), {"LARS", "LAMB", "Muon", "ScheduleFreeAdamW"});
  return all;
}

TEST(Optimizer, GroupsStepAsSeparateOptimizersWould) {
  for (const auto& name : batched()) {
    auto params = make_params();
    auto together = testing::make<Optimizer>(name, {{"lr", 0.01}});
    together->add_param_group({.params = {params[0]}, .lr = 0.05, .weight_decay = 0.3});
    together->add_param_group({.params = {params[1], params[2]}});

    auto other = make_params();
    auto first = testing::make<Optimizer>(name, {{"lr", 0.05}, {"weight_decay", 0.3}});
    first->add_param_group({.params = {other[0]}});
    auto second = testing::make<Optimizer>(name, {{"lr", 0.01}});
    second->add_param_group({.params = {other[1], other[2]}});
    for (int i = 0; i < 6; ++i) {
      train_step(*together, params);
      first->zero_grad();
      second->zero_grad();
      testing::loss_of(other).backward();
      first->step();
      second->step();
      ASSERT_TRUE(testing::bitwise_equal(params, other)) << name << " step " << i;
    }
  }
}

TEST(Optimizer, TakesMomentumPerGroup) {
  auto params = make_params();
  auto other = make_params();
  Adam optimizer(std::vector<ParamGroup>{{.params = params, .momentum = 0.5}});
  Adam expected(other, {.betas = {0.5, 0.999}});
  for (int i = 0; i < 4; ++i) {
    train_step(optimizer, params);
    train_step(expected, other);
  }
  EXPECT_TRUE(testing::bitwise_equal(params, other));
  EXPECT_TRUE(optimizer.param_groups()[0].has_momentum);
  EXPECT_FALSE(Adagrad(make_params()).param_groups()[0].has_momentum);
}

TEST(Optimizer, SkipsParametersWithoutGradient) {
  for (const auto& name : batched()) {
    auto params = make_params();
    const auto before = params[1].detach().clone();
    auto optimizer = testing::make<Optimizer>(name, {{"lr", 0.05}, {"weight_decay", 0.1}});
    optimizer->add_param_group({.params = params});
    for (int i = 0; i < 2; ++i) {
      set_grad(params[0], 0.5);
      set_grad(params[2], -0.5);
      optimizer->step();
    }
    EXPECT_TRUE(at::equal(params[1], before)) << name;
    EXPECT_FALSE(optimizer->state_dict().tensors.contains("1.step")) << name;
  }
}

// For example quantized weights, which a frozen layer holds as its parameter.
TEST(Optimizer, DoesNotChangeIntegers) {
  for (const auto& name : batched()) {
    auto params = make_params();
    const auto integers = at::full({3}, 7, at::kChar);
    params.insert(params.begin() + 1, integers);
    auto optimizer = testing::make<Optimizer>(name, {{"lr", 0.05}, {"weight_decay", 0.1}});
    optimizer->add_param_group({.params = params});
    set_grad(params[0], 0.5);
    optimizer->step();
    EXPECT_TRUE(at::equal(integers, at::full({3}, 7, at::kChar))) << name;
    EXPECT_FALSE(optimizer->state_dict().tensors.contains("1.step")) << name;
  }
}

// Parameter 1 joins at step 2 and leaves at step 4; each must move as if it had an optimizer of its own.
TEST(Optimizer, CountsStepsOfEachParameterAsGradientsComeAndGo) {
  for (const auto& name : batched()) {
    auto params = make_params();
    auto alone = make_params();
    auto args = nlohmann::json{{"lr", 0.05}};
    if (name == "SGD" || name == "RMSprop") args["momentum"] = 0.9;
    auto optimizer = testing::make<Optimizer>(name, args);
    optimizer->add_param_group({.params = params});
    std::vector<std::shared_ptr<Optimizer>> singles;
    for (const auto& param : alone) {
      singles.push_back(testing::make<Optimizer>(name, args));
      singles.back()->add_param_group({.params = {param}});
    }
    for (int i = 0; i < 8; ++i) {
      optimizer->zero_grad();
      for (size_t k = 0; k < params.size(); ++k) {
        alone[k].mutable_grad().reset();
        if (k == 1 && (i < 2 || i == 4)) continue;
        set_grad(params[k], 0.1 * (i + 1) - 0.3);
        set_grad(alone[k], 0.1 * (i + 1) - 0.3);
        singles[k]->step();
      }
      optimizer->step();
      ASSERT_TRUE(testing::bitwise_equal(params, alone)) << name << " step " << i;
    }
  }
}

TEST(Optimizer, UpdatesBfloat16AndFloat32Together) {
  for (const auto& name : batched()) {
    auto mixed = make_params(at::kFloat);
    mixed[1] = mixed[1].detach().to(at::kBFloat16).requires_grad_(true);
    auto floats = make_params(at::kFloat);
    auto optimizer = testing::make<Optimizer>(name, {{"lr", 0.05}});
    optimizer->add_param_group({.params = mixed});
    auto expected = testing::make<Optimizer>(name, {{"lr", 0.05}});
    expected->add_param_group({.params = floats});
    for (int i = 0; i < 5; ++i) {
      train_step(*optimizer, mixed);
      train_step(*expected, floats);
    }
    EXPECT_TRUE(at::equal(mixed[0], floats[0])) << name;
    EXPECT_TRUE(at::allclose(mixed[1].to(at::kFloat), floats[1], 0.03, 0.03)) << name << mixed[1] << floats[1];
    EXPECT_EQ(mixed[1].scalar_type(), at::kBFloat16);
  }
}

// Tensors that are long enough for vectorised kernels, with the same gradients in float64. In float16 the fused kernels
// alone, which compute in float32: the others lose squares and epsilons to its range, as PyTorch's do. Not Muon, whose
// iterations are in bfloat16 for either.
TEST(Optimizer, UpdatesLongTensorsInReducedPrecisionAsInDouble) {
  std::vector<std::pair<std::string, nlohmann::json>> settings;
  for (const auto& name : batched()) {
    if (name != "Muon") settings.push_back({name, {{"lr", 0.1}}});
  }
  settings.push_back({"SGD", {{"lr", 0.1}, {"momentum", 0.9}, {"nesterov", true}, {"weight_decay", 0.1}}});
  settings.push_back({"SGD", {{"lr", 0.1}, {"momentum", 0.9}, {"dampening", 0.5}, {"maximize", true}}});
  settings.push_back({"Adam", {{"lr", 0.1}, {"amsgrad", true}, {"weight_decay", 0.1}}});
  settings.push_back({"Adagrad", {{"lr", 0.1}, {"lr_decay", 0.1}, {"weight_decay", 0.1}}});
  settings.push_back({"RMSprop", {{"lr", 0.1}, {"momentum", 0.5}, {"centered", true}}});
  for (const auto& [type, tolerance] : {std::pair{at::kBFloat16, 0.03}, std::pair{at::kHalf, 0.004}}) {
    for (const auto& [name, init_args] : settings) {
      const bool is_fused = name == "SGD" || name == "Adam" || name == "AdamW" || name == "Adagrad";
      if (type == at::kHalf && !is_fused) continue;
      for (const bool recordable : {false, true}) {
        std::vector<at::Tensor> reduced, doubles;
        for (const int64_t rows : {1, 3, 7}) {
          const at::Tensor start = at::arange(rows * 33, at::kDouble).mul_(0.7).sin_().view({rows, 33}).to(type);
          reduced.push_back(start.clone().requires_grad_(true));
          doubles.push_back(start.to(at::kDouble).requires_grad_(true));
        }
        const auto optimizer = testing::make<Optimizer>(name, init_args);
        const auto expected = testing::make<Optimizer>(name, init_args);
        optimizer->add_param_group({.params = reduced});
        expected->add_param_group({.params = doubles});
        if (recordable && !optimizer->is_recordable()) continue;
        if (recordable) optimizer->make_recordable();
        for (int step = 0; step < 3; ++step) {
          for (size_t i = 0; i < reduced.size(); ++i) {
            const at::Tensor gradient =
                at::arange(reduced[i].numel(), at::kDouble).add_(step).cos_().view_as(reduced[i]).to(type);
            reduced[i].mutable_grad() = gradient;
            doubles[i].mutable_grad() = gradient.to(at::kDouble);
          }
          optimizer->step();
          expected->step();
        }
        for (size_t i = 0; i < reduced.size(); ++i) {
          const double most = (reduced[i].detach().to(at::kDouble) - doubles[i].detach()).abs().max().item<double>();
          EXPECT_LT(most, tolerance) << name << " " << init_args << " in " << type << ", tensor " << i;
        }
      }
    }
  }
}

TEST(Optimizer, TakesAnyMemoryLayout) {
  for (const auto& name : batched()) {
    auto params = make_params();
    auto plain = make_params();
    const auto values = params[0].detach();
    params[0] = values.t().contiguous().t().requires_grad_(true);  // column by column
    const at::Tensor wide = at::zeros({5, 2}, at::kDouble);
    const at::Tensor column = wide.select(1, 0);  // with gaps
    column.copy_(params[1].detach());
    params[1] = column.detach().requires_grad_(true);
    ASSERT_FALSE(params[1].is_non_overlapping_and_dense());
    auto optimizer = testing::make<Optimizer>(name, {{"lr", 0.05}});
    optimizer->add_param_group({.params = params});
    auto expected = testing::make<Optimizer>(name, {{"lr", 0.05}});
    expected->add_param_group({.params = plain});
    for (int i = 0; i < 5; ++i) {
      optimizer->zero_grad();
      testing::loss_of(params).backward();
      params[0].mutable_grad() = params[0].grad().contiguous();  // not as its parameter lies
      optimizer->step();
      train_step(*expected, plain);
    }
    for (size_t i = 0; i < params.size(); ++i) EXPECT_TRUE(at::allclose(params[i], plain[i], 1e-13, 1e-13)) << name;
    EXPECT_EQ(wide.select(1, 1).abs().sum().item<double>(), 0) << name;
  }
}

TEST(Optimizer, MaximizeIsDescentOnTheNegatedGradient) {
  for (const auto& name : batched_of_pytorch()) {
    auto up = make_params();
    auto down = make_params();
    auto climb = testing::make<Optimizer>(name, {{"lr", 0.05}, {"weight_decay", 0.1}, {"maximize", true}});
    climb->add_param_group({.params = up});
    auto descend = testing::make<Optimizer>(name, {{"lr", 0.05}, {"weight_decay", 0.1}});
    descend->add_param_group({.params = down});
    for (int i = 0; i < 5; ++i) {
      for (size_t k = 0; k < up.size(); ++k) {
        set_grad(up[k], 0.3 - 0.2 * i);
        set_grad(down[k], 0.2 * i - 0.3);
      }
      climb->step();
      descend->step();
      EXPECT_EQ(up[0].grad().flatten()[0].item<double>(), 0.3 - 0.2 * i) << name << " changed the gradient";
    }
    EXPECT_TRUE(testing::bitwise_equal(up, down)) << name;
  }
}

TEST(Optimizer, MomentumMayBeSwitchedOnLater) {
  auto params = make_params();
  SGD optimizer(params, {.lr = 0.1});
  train_step(optimizer, params);
  optimizer.param_groups()[0].momentum = 0.9;
  auto other = make_params();
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < other.size(); ++i) other[i].copy_(params[i]);
  }
  SGD expected(other, {.lr = 0.1, .momentum = 0.9});
  for (int i = 0; i < 3; ++i) {
    train_step(optimizer, params);
    train_step(expected, other);
  }
  EXPECT_TRUE(testing::bitwise_equal(params, other));
}

TEST(Optimizer, ZeroGradDropsOrZeroes) {
  auto params = make_params();
  SGD optimizer(params);
  testing::loss_of(params).backward();
  const at::Tensor grad = params[0].grad();
  optimizer.zero_grad(false);
  EXPECT_TRUE(params[0].grad().is_same(grad));
  EXPECT_EQ(grad.abs().sum().item<double>(), 0);
  optimizer.zero_grad();
  EXPECT_FALSE(params[0].grad().defined());
}

TEST(Optimizer, KeepsNoGradientAlive) {
  auto params = make_params();
  AdamW optimizer(params);
  testing::loss_of(params).backward();
  optimizer.step();
  EXPECT_EQ(params[0].grad().use_count(), 1U);
}

TEST(Optimizer, AutogradNoticesTheUpdate) {
  auto params = make_params();
  AdamW optimizer(params);
  auto loss = params[0].pow(2).sum();  // keeps params[0] for backward
  set_grad(params[0], 1.0);
  optimizer.step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(Optimizer, ClosureRunsOnceWithGradientsOnAndGivesTheLoss) {
  auto params = make_params();
  SGD optimizer(params, {.lr = 0.01});
  const at::NoGradGuard no_grad;
  int calls = 0;
  const at::Tensor loss = optimizer.step([&] {
    ++calls;
    auto value = testing::loss_of(params);
    value.backward();
    return value;
  });
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(loss.defined());
  EXPECT_TRUE(params[0].grad().defined());
}

TEST(Optimizer, CanBeMovedBetweenSteps) {
  auto params = make_params();
  auto other = make_params();
  AdamW stays(params);
  AdamW first(other);
  train_step(stays, params);
  train_step(first, other);
  AdamW moved(std::move(first));
  train_step(stays, params);
  train_step(moved, other);
  EXPECT_TRUE(testing::bitwise_equal(params, other));
}

// LibTorch's parameters() lists a layer with two names twice, and PyTorch's once.
TEST(Optimizer, UpdatesATensorThatAGroupListsTwiceOnce) {
  auto params = make_params();
  auto listed = make_params();
  std::vector<at::Tensor> all = listed;
  all.insert(all.end(), listed.rbegin(), listed.rend());
  AdamW once(params, {.lr = 0.1});
  AdamW twice(all, {.lr = 0.1});
  EXPECT_EQ(twice.parameters().size(), listed.size());
  for (int k = 0; k < 3; ++k) {
    train_step(once, params);
    train_step(twice, listed);
  }
  EXPECT_TRUE(testing::bitwise_equal(params, listed));
}

TEST(Optimizer, RefusesWrongGroups) {
  auto params = make_params();
  SGD optimizer(params);
  expect_error<Error>([&] { optimizer.add_param_group({}); }, {"SGD: parameter group 1", "no tensors", "parameters()"});
  expect_error<Error>([&] { optimizer.add_param_group({.params = {params[0] * 2}}); },
                      {"group 1, tensor 0", "not a leaf", "detach()"});
  expect_error<Error>(
      [&] {
        optimizer.add_param_group({.params = {at::ones({1}), params[2]}});
      },
      {"group 1, tensor 1", "already in parameter group 0", "to one group only", "tied weights"});
  expect_error<Error>([&] { optimizer.add_param_group({.params = {at::Tensor()}}); }, {"tensor 0", "undefined"});
  expect_error<Error>([&] { optimizer.add_param_group({.params = {at::ones({1}, at::kComplexFloat)}}); },
                      {"tensor 0", "c10::complex<float>", "floating point"});
  expect_error<Error>([&] { optimizer.add_param_group({.params = {at::ones({1})}, .lr = -0.1}); },
                      {"group 1.lr", ">= 0", "-0.1"});
  expect_error<Error>([&] { optimizer.add_param_group({.params = {at::ones({1})}, .weight_decay = -1.0}); },
                      {"group 1.weight_decay", ">= 0", "-1"});
  Adagrad adagrad(make_params());
  expect_error<Error>([&] { adagrad.add_param_group({.params = {at::ones({1})}, .momentum = 0.9}); },
                      {"sets momentum", "Adagrad does not have", "unset"});
  EXPECT_EQ(optimizer.param_groups().size(), 1U);
}

TEST(Optimizer, RefusesSparseGradients) {
  const at::Tensor param = at::ones({4, 2}).requires_grad_(true);
  SGD optimizer(std::vector<at::Tensor>{param});
  param.mutable_grad() = at::ones({4, 2}).to_sparse();
  expect_error<Error>([&] { optimizer.step(); }, {"SGD: tensor 0", "(4, 2)", "sparse", "sparse(false)"});
}

TEST(LBFGS, NeedsAClosureAndOneGroup) {
  LBFGS optimizer(make_params());
  EXPECT_TRUE(optimizer.needs_closure());
  expect_error<Error>([&] { optimizer.step(); }, {"LBFGS", "step(closure)", "backward()"});
  expect_error<Error>([&] { optimizer.add_param_group({.params = {at::ones({1})}}); },
                      {"LBFGS", "one parameter group"});
  EXPECT_EQ(optimizer.param_groups().size(), 1U);
}

TEST(LBFGS, FollowsTheGroupsLearningRate) {
  auto params = make_params();
  auto other = make_params();
  LBFGS optimizer(params, {.lr = 1, .max_iter = 2});
  LBFGS expected(other, {.lr = 0.25, .max_iter = 2});
  optimizer.param_groups()[0].lr = 0.25;
  train_step(optimizer, params);
  train_step(expected, other);
  EXPECT_TRUE(testing::bitwise_equal(params, other));
}

}  // namespace
}  // namespace levin::optimizer_test
