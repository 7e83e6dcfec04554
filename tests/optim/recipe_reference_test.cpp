// Optimizers and a schedule against numbers recorded by tests/data/reference/recipes.py: Muon, Adafactor and the
// schedule of PyTorch 2.11, the others written there from the formulas of their papers.
#include "optim/support.h"

namespace levin::recipe_reference_test {
namespace {

const nlohmann::json& file() {
  static const nlohmann::json all = testing::reference("recipes.json");
  return all;
}

std::vector<at::Tensor> start_params(const nlohmann::json& shapes, at::ScalarType type) {
  std::vector<at::Tensor> params;
  for (const auto& dimensions : shapes) {
    const auto shape = dimensions.get<std::vector<int64_t>>();
    const auto count = c10::multiply_integers(shape);
    const double rate = 0.37 * static_cast<double>(params.size() + 1);
    params.push_back(at::arange(1, count + 1, at::kDouble).mul_(rate).sin_().reshape(shape).to(type));
    params.back().requires_grad_(true);
  }
  return params;
}

at::Tensor set_gradients(const std::vector<at::Tensor>& params) {
  at::Tensor loss = at::zeros({}, params[0].options().requires_grad(false));
  for (const auto& p : params) {
    const at::Tensor value = p.detach();
    p.mutable_grad() = value - 0.3 + value * value / 10;
    loss = loss + ((value - 0.3).pow(2) / 2 + value.pow(3) / 30).sum();
  }
  return loss;
}

void expect_values(const at::Tensor& got, const nlohmann::json& want, double tolerance, const std::string& what) {
  const auto numbers = want.get<std::vector<double>>();
  const at::Tensor expected = at::tensor(numbers, at::kDouble).reshape(got.sizes());
  const double error = (got.detach().to(at::kDouble) - expected).abs().max().item<double>();
  ASSERT_LE(error, tolerance) << what << got << expected;
}

class RecipeReference : public ::testing::TestWithParam<size_t> {};

TEST_P(RecipeReference, GivesTheRecordedNumbers) {
  const auto& one = file().at("cases")[GetParam()];
  const auto name = one.at("optimizer").get<std::string>();
  const bool is_muon = name == "Muon";
  const std::vector<at::Tensor> params =
      start_params(one.contains("shapes") ? one.at("shapes") : file().at("shapes"), is_muon ? at::kFloat : at::kDouble);
  const auto optimizer = testing::make<Optimizer>(name, one.at("init_args"));
  if (auto* by_name = dynamic_cast<NamesParameters*>(optimizer.get())) {
    by_name->take_names({{"p0", params[0]}, {"p1", params[1]}, {"p2", params[2]}});
  }
  optimizer->add_param_group({.params = params});
  // Muon multiplies matrices in bfloat16, whose rounding differs between processors.
  const double tolerance = is_muon ? 0.02 * one.at("init_args").at("lr").get<double>() : 1e-12;
  size_t step = 0;
  for (const auto& expected : one.at("trajectory")) {
    optimizer->step([&] { return set_gradients(params); });
    const std::string what = name + one.at("init_args").dump() + " step " + std::to_string(++step) + "\n";
    for (size_t i = 0; i < params.size(); ++i) expect_values(params[i], expected[i], tolerance, what);
    if (!one.contains("averages")) continue;
    auto& averaging = dynamic_cast<AveragingOptimizer&>(*optimizer);
    averaging.eval();
    for (size_t i = 0; i < params.size(); ++i) {
      expect_values(params[i], one.at("averages")[step - 1][i], tolerance, "average, " + what);
    }
    averaging.train();
  }
  EXPECT_EQ(step, 8U);
}

std::string case_name(const ::testing::TestParamInfo<size_t>& info) {
  return file().at("cases")[info.param].at("optimizer").get<std::string>() + "_" + std::to_string(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, RecipeReference, ::testing::Range<size_t>(0, file().at("cases").size()), case_name);

TEST(RecipeReferenceFile, HoldsAllCases) {
  EXPECT_EQ(file().at("cases").size(), 16U);
}

TEST(CosineWithWarmup, IsPyTorchsWarmupFollowedByItsCosine) {
  const auto& one = file().at("cosine_with_warmup");
  SGD optimizer({at::ones({2})}, {.lr = one.at("lr")});
  CosineWithWarmup scheduler(optimizer, {.warmup = one.at("warmup").get<int64_t>(),
                                         .start_factor = one.at("start_factor"),
                                         .eta_min = one.at("eta_min"),
                                         .total_steps = one.at("total_steps").get<int64_t>()});
  const auto rates = one.at("rates").get<std::vector<double>>();
  ASSERT_EQ(rates.size(), 41U);
  for (size_t step = 0; step < rates.size(); ++step) {
    ASSERT_NEAR(optimizer.param_groups()[0].lr, rates[step], 1e-12) << "step " << step;
    scheduler.step();
  }
}

}  // namespace
}  // namespace levin::recipe_reference_test
