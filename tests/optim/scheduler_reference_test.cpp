// Every scheduler against the numbers that PyTorch 2.11 gave (tests/data/reference/schedulers.json).
#include "optim/support.h"

namespace levin::scheduler_reference_test {
namespace {

class SchedulerReference : public ::testing::TestWithParam<size_t> {};

const nlohmann::json& cases() {
  static const nlohmann::json all = testing::reference("schedulers.json").at("cases");
  return all;
}

struct Training {
  SGD optimizer{
      std::vector<ParamGroup>{{.params = {at::ones({2})}, .lr = 0.1}, {.params = {at::ones({3})}, .lr = 0.02}},
      {.momentum = 0.9}};
  std::shared_ptr<LRScheduler> scheduler;

  explicit Training(const nlohmann::json& one)
      : scheduler(testing::make<LRScheduler>(one.at("scheduler"), one.at("init_args"))) {
    scheduler->attach(optimizer);
  }
  void step(const nlohmann::json& one, size_t i) {
    if (one.at("metric").is_null()) return scheduler->step();
    scheduler->step(one.at("metric")[i].get<double>());
  }
};

void expect_at(const Training& run, const nlohmann::json& one, size_t step) {
  const auto& groups = run.optimizer.param_groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto lr = one.at("lr")[step][g].get<double>();
    ASSERT_NEAR(groups[g].lr, lr, 1e-12 * std::abs(lr) + 1e-17) << one.at("scheduler") << " step " << step;
    ASSERT_EQ(run.scheduler->get_last_lr()[g], groups[g].lr);
    ASSERT_NEAR(groups[g].momentum, one.at("momentum")[step][g].get<double>(), 1e-12) << " step " << step;
  }
}

TEST_P(SchedulerReference, GivesTheNumbersOfPyTorch) {
  const auto& one = cases()[GetParam()];
  ASSERT_EQ(one.at("lr").size(), 41U);
  Training run(one);
  expect_at(run, one, 0);
  for (size_t i = 0; i < 40; ++i) {
    run.step(one, i);
    expect_at(run, one, i + 1);
  }
}

TEST_P(SchedulerReference, ResumesBitwiseIdentical) {
  const auto& one = cases()[GetParam()];
  for (const size_t stop : {0U, 3U, 7U, 20U}) {
    Training whole(one);
    for (size_t i = 0; i < stop; ++i) whole.step(one, i);
    Training resumed(one);
    resumed.optimizer.load_state_dict(whole.optimizer.state_dict());
    resumed.scheduler->load_state_dict(whole.scheduler->state_dict());
    EXPECT_EQ(resumed.scheduler->last_epoch, whole.scheduler->last_epoch);
    EXPECT_EQ(resumed.scheduler->get_last_lr(), whole.scheduler->get_last_lr());
    for (size_t i = stop; i < 40; ++i) {
      whole.step(one, i);
      resumed.step(one, i);
      for (size_t g = 0; g < 2; ++g) {
        ASSERT_EQ(whole.optimizer.param_groups()[g].lr, resumed.optimizer.param_groups()[g].lr) << "step " << i;
        ASSERT_EQ(whole.optimizer.param_groups()[g].momentum, resumed.optimizer.param_groups()[g].momentum)
            << "step " << i;
      }
    }
  }
}

std::string case_name(const ::testing::TestParamInfo<size_t>& info) {
  return cases()[info.param].at("scheduler").get<std::string>() + "_" + std::to_string(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, SchedulerReference, ::testing::Range<size_t>(0, cases().size()), case_name);

TEST(SchedulerReferenceFile, HoldsAllCases) {
  EXPECT_EQ(cases().size(), 18U);
}

}  // namespace
}  // namespace levin::scheduler_reference_test
