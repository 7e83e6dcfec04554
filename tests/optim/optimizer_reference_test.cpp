// Every optimizer against the numbers that PyTorch 2.11 gave (tests/data/reference/optimizers.json).
#include "optim/support.h"

namespace levin::optimizer_reference_test {
namespace {

class OptimizerReference : public ::testing::TestWithParam<size_t> {};

const nlohmann::json& cases() {
  static const nlohmann::json all = testing::reference("optimizers.json").at("cases");
  return all;
}

TEST_P(OptimizerReference, GivesTheNumbersOfPyTorch) {
  const auto& one = cases()[GetParam()];
  const bool is_double = one.at("dtype") == "float64";
  const auto type = is_double ? at::kDouble : at::kFloat;
  const auto start = one.at("start").get<std::vector<double>>();
  const at::Tensor param = at::tensor(start, at::kDouble).to(type).requires_grad_(true);
  const at::Tensor target = at::tensor({0.2, 0.4, -0.6, 0.8}, at::kDouble).to(type);
  const auto optimizer = testing::make<Optimizer>(one.at("optimizer"), one.at("init_args"));
  optimizer->add_param_group({.params = {param}});

  const double tolerance = is_double ? 1e-12 : 2e-6;
  size_t step = 0;
  for (const auto& expected : one.at("trajectory")) {
    optimizer->step([&] {
      optimizer->zero_grad();
      auto loss = (param - target).pow(2).sum() * 0.5 + param.pow(3).sum() / 30;
      loss.backward();
      return loss;
    });
    ++step;
    for (int64_t i = 0; i < param.numel(); ++i) {
      const auto want = expected[static_cast<size_t>(i)].get<double>();
      ASSERT_NEAR(param[i].item<double>(), want, tolerance * std::max(1.0, std::abs(want)))
          << one.at("optimizer") << one.at("init_args") << " step " << step << " element " << i;
    }
  }
  EXPECT_EQ(step, 12U);
}

std::string case_name(const ::testing::TestParamInfo<size_t>& info) {
  const auto& one = cases()[info.param];
  return one.at("optimizer").get<std::string>() + "_" + one.at("dtype").get<std::string>() + "_" +
         std::to_string(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerReference, ::testing::Range<size_t>(0, cases().size()), case_name);

TEST(OptimizerReferenceFile, HoldsAllCases) {
  EXPECT_EQ(cases().size(), 52U);
}

}  // namespace
}  // namespace levin::optimizer_reference_test
