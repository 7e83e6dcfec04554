// Options of all optimizers and schedulers: every field is listed, defaults are PyTorch's, ranges are checked.
#include <cmath>

#include "optim/support.h"
#include "support/field_count.h"

namespace levin::options_test {
namespace {

using testing::expect_error;
using testing::field_count;

template <class Options>
void expect_all_listed() {
  EXPECT_EQ(field_count<Options>(), field_names<Options>().size());
  EXPECT_TRUE(testing::in_declared_order<Options>());
  // What is written reads back: names, types and defaults agree with each other.
  const ConfigNode written = write_options(Options{});
  for (const auto& info : describe_options<Options>()) {
    EXPECT_NE(written.find(info.name), nullptr);
    EXPECT_FALSE(info.doc.empty()) << info.name;
  }
}

TEST(OptimOptions, ListEveryField) {
  expect_all_listed<SGDOptions>();
  expect_all_listed<AdamOptions>();
  expect_all_listed<AdamWOptions>();
  expect_all_listed<RMSpropOptions>();
  expect_all_listed<AdagradOptions>();
  expect_all_listed<AdadeltaOptions>();
  expect_all_listed<AdafactorOptions>();
  expect_all_listed<AdamaxOptions>();
  expect_all_listed<NAdamOptions>();
  expect_all_listed<RAdamOptions>();
  expect_all_listed<LBFGSOptions>();
  expect_all_listed<LARSOptions>();
  expect_all_listed<LAMBOptions>();
  expect_all_listed<MuonOptions>();
  expect_all_listed<ScheduleFreeAdamWOptions>();
  expect_all_listed<SAMOptions>();
  expect_all_listed<LookaheadOptions>();
  expect_all_listed<StepLROptions>();
  expect_all_listed<MultiStepLROptions>();
  expect_all_listed<ConstantLROptions>();
  expect_all_listed<LinearLROptions>();
  expect_all_listed<ExponentialLROptions>();
  expect_all_listed<PolynomialLROptions>();
  expect_all_listed<CosineAnnealingLROptions>();
  expect_all_listed<CosineAnnealingWarmRestartsOptions>();
  expect_all_listed<CosineWithWarmupOptions>();
  expect_all_listed<OneCycleLROptions>();
  expect_all_listed<CyclicLROptions>();
  expect_all_listed<SequentialLROptions>();
  expect_all_listed<ChainedSchedulerOptions>();
  expect_all_listed<ReduceLROnPlateauOptions>();
}

TEST(OptimOptions, RefuseNumbersThatAreNotFinite) {
  const double inf = HUGE_VAL, nan = std::nan("");
  expect_error<ConfigError>([&] { SGD(SGDOptions{.lr = inf}); }, {"SGDOptions.lr: must be finite, got .inf."});
  expect_error<ConfigError>(
      [&] {
        AdamW(AdamWOptions{.betas = {0.9, nan}});
      },
      {"AdamWOptions.betas: must be finite, got .nan."});
  expect_error<ConfigError>([&] { LBFGS(LBFGSOptions{.lr = -inf}); }, {"LBFGSOptions.lr: must be finite, got -.inf."});
  expect_error<ConfigError>([&] { StepLR({.step_size = 1, .gamma = inf}); }, {"StepLROptions.gamma: must be finite"});
  expect_error<ConfigError>(
      [&] {
        OneCycleLR({.max_lr = std::vector<double>{0.1, inf}, .total_steps = 5});
      },
      {"OneCycleLROptions.max_lr: must be finite, got .inf."});
  SGD sgd;
  expect_error<Error>([&] { sgd.add_param_group({.params = {at::ones({1})}, .lr = inf}); },
                      {"SGD: parameter group 0.lr: must be finite, got .inf."});
}

struct Empty {};
struct Mixed {
  int a = 0;
  std::optional<std::vector<double>> b = {};
  std::variant<double, std::string> c = 0.0;
  std::array<double, 2> d = {};
  Empty e = {};
};
struct Nine {
  int a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
  std::string i = "";
};
static_assert(field_count<Empty>() == 0);
static_assert(field_count<Mixed>() == 5);
static_assert(field_count<Nine>() == 9);
static_assert(field_count<OneCycleLROptions>() == 12);

TEST(OptimOptions, RefuseWhatPyTorchRefuses) {
  auto refuse = [](const std::string& name, const nlohmann::json& args, const std::vector<std::string>& parts) {
    expect_error<ConfigError>([&] { static_cast<void>(testing::make<Optimizer>(name, args)); }, parts);
  };
  for (const auto* name : {"SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam"}) {
    refuse(name, {{"lr", -0.1}}, {"lr", ">= 0", "-0.1"});
    refuse(name, {{"weight_decay", -1.0}}, {"weight_decay", ">= 0", "-1"});
  }
  for (const auto* name : {"Adam", "AdamW", "Adamax", "NAdam", "RAdam"}) {
    refuse(name, {{"betas", {1.0, 0.9}}}, {"betas", "two numbers in [0, 1)"});
    refuse(name, {{"betas", {0.9, -0.1}}}, {"betas", "two numbers in [0, 1)"});
    refuse(name, {{"eps", -1e-8}}, {"eps", ">= 0"});
  }
  refuse("SGD", {{"momentum", -0.5}}, {"momentum", ">= 0", "-0.5"});
  refuse("SGD", {{"nesterov", true}}, {"SGDOptions.nesterov", "momentum > 0", "got momentum 0"});
  refuse("SGD", {{"nesterov", true}, {"momentum", 0.9}, {"dampening", 0.5}}, {"SGDOptions.nesterov", "dampening 0.5"});
  refuse("RMSprop", {{"alpha", -1.0}}, {"alpha", ">= 0"});
  refuse("RMSprop", {{"momentum", -1.0}}, {"momentum", ">= 0"});
  refuse("Adagrad", {{"lr_decay", -1.0}}, {"lr_decay", ">= 0"});
  refuse("Adagrad", {{"initial_accumulator_value", -1.0}}, {"initial_accumulator_value", ">= 0"});
  refuse("Adadelta", {{"rho", 1.5}}, {"rho", "<= 1", "1.5"});
  refuse("NAdam", {{"momentum_decay", -1.0}}, {"momentum_decay", ">= 0"});
  refuse("LBFGS", {{"line_search_fn", "wolfe"}}, {"line_search_fn", "wolfe", "strong_wolfe"});
  refuse("LBFGS", {{"max_iter", 0}}, {"max_iter", ">= 1"});
  expect_error<ConfigError>([] { SGD optimizer(SGDOptions{.lr = std::nan("")}); },
                            {"SGDOptions.lr", "must be finite", "nan"});
}

TEST(OptimOptions, RefuseSchedulesThatCannotBe) {
  auto refuse = [](const std::string& name, const nlohmann::json& args, const std::vector<std::string>& parts) {
    expect_error<ConfigError>([&] { static_cast<void>(testing::make<LRScheduler>(name, args)); }, parts);
  };
  const auto none = nlohmann::json::object();
  refuse("StepLR", none, {"step_size", ">= 1", "got 0"});
  refuse("MultiStepLR", none, {"milestones", "set"});
  refuse("MultiStepLR", {{"milestones", {5, 3}}}, {"milestones", "rising"});
  refuse("ConstantLR", {{"factor", 1.5}}, {"factor", "<= 1", "1.5"});
  refuse("ConstantLR", {{"factor", 0.0}}, {"factor", "> 0"});
  refuse("LinearLR", {{"start_factor", 0.0}}, {"start_factor", "> 0"});
  refuse("LinearLR", {{"end_factor", 2.0}}, {"end_factor", "<= 1"});
  refuse("ExponentialLR", none, {"gamma", "> 0"});
  refuse("PolynomialLR", {{"total_iters", 0}}, {"total_iters", ">= 1"});
  refuse("CosineAnnealingLR", none, {"T_max", ">= 1"});
  refuse("CosineAnnealingWarmRestarts", none, {"T_0", ">= 1"});
  refuse("CosineAnnealingWarmRestarts", {{"T_0", 3}, {"T_mult", 0}}, {"T_mult", ">= 1"});
  refuse("OneCycleLR", {{"total_steps", 10}}, {"max_lr", "set"});
  refuse("OneCycleLR", {{"max_lr", 0.1}, {"total_steps", 0}}, {"total_steps", ">= 1", "0"});
  refuse("OneCycleLR", {{"max_lr", 0.1}, {"pct_start", 1.5}}, {"pct_start", "<= 1"});
  refuse("OneCycleLR", {{"max_lr", 0.1}, {"anneal_strategy", "cosine"}}, {"anneal_strategy", "cosine", "cos, linear"});
  refuse("CyclicLR", {{"max_lr", 0.1}}, {"base_lr", "set"});
  refuse("CyclicLR", {{"base_lr", 0.1}}, {"max_lr", "set"});
  refuse("CyclicLR", {{"base_lr", 0.1}, {"max_lr", "high"}}, {"max_lr", "float or list of float", "high"});
  refuse("SequentialLR", none, {"schedulers", "set"});
  refuse("ChainedScheduler", none, {"schedulers", "set"});
  refuse("ReduceLROnPlateau", {{"factor", 1.0}}, {"factor", "< 1"});
  refuse("ReduceLROnPlateau", {{"mode", "less"}}, {"mode", "less", "min, max"});
}

TEST(OptimOptions, ReadANumberOrAList) {
  const auto one = testing::make<LRScheduler>("OneCycleLR", {{"max_lr", 1}, {"total_steps", 10}});
  const auto list = testing::make<LRScheduler>("OneCycleLR", {{"max_lr", {0.1, 0.2}}, {"total_steps", 10}});
  SGD optimizer(std::vector<ParamGroup>{{.params = {at::ones({1})}}, {.params = {at::ones({1})}}});
  list->attach(optimizer);
  EXPECT_EQ(optimizer.param_groups()[0].initial_lr, 0.1 / 25);
  EXPECT_EQ(optimizer.param_groups()[1].initial_lr, 0.2 / 25);
}

}  // namespace
}  // namespace levin::options_test
