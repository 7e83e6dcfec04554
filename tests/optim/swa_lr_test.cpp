#include "levin/optim/swa_lr.h"

#include <numbers>

#include "optim/support.h"
#include "support/field_count.h"

namespace levin::swa_lr_test {
namespace {

using testing::expect_error;

at::Tensor parameter() {
  return at::ones({2}).set_requires_grad(true);
}

std::vector<double> course(SWALROptions options, int64_t steps) {
  SGD optimizer({parameter()}, {.lr = 0.5});
  SWALR scheduler(optimizer, options);
  std::vector<double> lrs{optimizer.param_groups()[0].lr};
  for (int64_t i = 0; i < steps; ++i) {
    scheduler.step();
    lrs.push_back(optimizer.param_groups()[0].lr);
  }
  return lrs;
}

TEST(SWALR, GoesToItsConstantAlongTheFormula) {
  for (const AnnealStrategy strategy : {AnnealStrategy::cos, AnnealStrategy::linear}) {
    const auto lrs = course({.swa_lr = 0.05, .anneal_epochs = 5, .anneal_strategy = strategy}, 8);
    for (int64_t step = 0; step <= 8; ++step) {
      const double t = std::min(1.0, static_cast<double>(step) / 5);
      const double way = strategy == AnnealStrategy::linear ? t : (1 - std::cos(std::numbers::pi * t)) / 2;
      EXPECT_NEAR(lrs[static_cast<size_t>(step)], 0.5 + way * (0.05 - 0.5), 1e-12) << step;
    }
    EXPECT_EQ(lrs[8], 0.05);
  }
}

TEST(SWALR, IsThereAtOnceWithoutAnnealing) {
  EXPECT_EQ(course({.swa_lr = 0.05, .anneal_epochs = 0}, 2), (std::vector<double>{0.05, 0.05, 0.05}));
}

TEST(SWALR, TakesOneRatePerGroup) {
  SGD optimizer({{.params = {parameter()}, .lr = 0.4}, {.params = {parameter()}, .lr = 0.2}}, {});
  SWALR scheduler(
      optimizer,
      {.swa_lr = std::vector<double>{0.1, 0.3}, .anneal_epochs = 2, .anneal_strategy = AnnealStrategy::linear});
  scheduler.step();
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].lr, 0.25);
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[1].lr, 0.25);
  SGD single({parameter()}, {.lr = 0.5});
  expect_error<Error>(
      [&] {
        SWALR(single, {.swa_lr = std::vector<double>{0.1, 0.3}});
      },
      {"SWALR.swa_lr", "2 values", "1 par"});
}

TEST(SWALR, ContinuesFromItsState) {
  const SWALROptions options{.swa_lr = 0.05, .anneal_epochs = 4};
  SGD first({parameter()}, {.lr = 0.5}), second({parameter()}, {.lr = 0.5});
  SWALR one(first, options), other(second, options);
  for (int i = 0; i < 2; ++i) one.step();
  second.load_state_dict(first.state_dict());
  other.load_state_dict(one.state_dict());
  for (int i = 0; i < 4; ++i) {
    one.step();
    other.step();
    EXPECT_EQ(first.param_groups()[0].lr, second.param_groups()[0].lr);
  }
}

TEST(SWALR, RefusesOptionsOutOfRange) {
  EXPECT_EQ(testing::field_count<SWALROptions>(), field_names<SWALROptions>().size());
  expect_error<ConfigError>([] { SWALR(SWALROptions{}); }, {"SWALROptions.swa_lr", "set, and > 0"});
  expect_error<ConfigError>([] { SWALR({.swa_lr = 0.1, .anneal_epochs = -1}); }, {"anneal_epochs", ">= 0", "-1"});
}

}  // namespace
}  // namespace levin::swa_lr_test
