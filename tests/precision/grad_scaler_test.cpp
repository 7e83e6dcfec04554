// GradScaler against the numbers that PyTorch 2.11 gave (tests/data/reference/grad_scaler.json), and its edges.
#include "levin/precision/grad_scaler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "callbacks/quiet_trainer.h"
#include "levin/optim/clip_grad.h"
#include "levin/optim/sgd.h"
#include "levin/precision/mixed_precision.h"
#include "support/field_count.h"
#include "support/paths.h"

namespace levin::grad_scaler_test {
namespace {

using test::error_of;
using test::has;

nlohmann::json reference() {
  std::ifstream stream(test::source_dir() + "/tests/data/reference/grad_scaler.json");
  return nlohmann::json::parse(stream);
}

GradScalerOptions options_of(const nlohmann::json& init_args) {
  GradScalerOptions options;
  options.init_scale = init_args.value("init_scale", options.init_scale);
  options.growth_factor = init_args.value("growth_factor", options.growth_factor);
  options.backoff_factor = init_args.value("backoff_factor", options.backoff_factor);
  options.growth_interval = init_args.value("growth_interval", options.growth_interval);
  return options;
}

at::Tensor with_gradient(const at::Tensor& values) {
  at::Tensor param = torch::zeros_like(values).requires_grad_();
  param.mutable_grad() = values.clone();
  return param;
}

/// One that has scaled a loss before, so that it may unscale.
GradScaler used_scaler(GradScalerOptions options = {}) {
  GradScaler scaler(options);
  (void)scaler.scale(torch::ones({}));
  return scaler;
}

TEST(GradScaler, FollowsPyTorchsScaleSkipsAndParameters) {
  const nlohmann::json cases = reference().at("cases");
  ASSERT_EQ(cases.size(), 2U);
  for (const auto& one : cases) {
    GradScaler scaler(options_of(one.at("init_args")));
    at::Tensor p = torch::tensor({1.0F, 2.0F}).requires_grad_();
    SGD optimizer({p}, {.lr = 0.1});
    ASSERT_EQ(one.at("rows").size(), 20U);
    for (const auto& row : one.at("rows")) {
      const std::string where = one.at("init_args").dump() + " step " + row.at("step").dump();
      const bool inf = row.at("inf");
      optimizer.zero_grad();
      scaler.scale((p * p).sum()).backward();
      if (inf) p.mutable_grad()[0] = INFINITY;
      const at::Tensor found_inf = scaler.unscale_({p});
      EXPECT_EQ(found_inf.item<float>() != 0, inf) << where;
      const double norm = clip_grad_norm_({p}, 1.0).item<double>();
      if (!inf) {
        EXPECT_FLOAT_EQ(norm, row.at("norm_before_clip").get<double>()) << where;
      }
      if (found_inf.item<float>() == 0) optimizer.step();
      scaler.update(found_inf);
      EXPECT_EQ(scaler.scale_value(), row.at("scale_after").get<double>()) << where;
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_FLOAT_EQ(p[i].item<float>(), row.at("p")[i].get<float>()) << where;
      }
    }
  }
}

TEST(GradScaler, HasPyTorchsConstants) {
  const GradScalerOptions options;
  EXPECT_EQ(options.init_scale, 65536.0);
  EXPECT_EQ(options.growth_factor, 2.0);
  EXPECT_EQ(options.backoff_factor, 0.5);
  EXPECT_EQ(options.growth_interval, 2000);
  EXPECT_EQ(field_names<GradScalerOptions>().size(), levin::testing::field_count<GradScalerOptions>());
  EXPECT_EQ(field_names<MixedPrecisionOptions>().size(), levin::testing::field_count<MixedPrecisionOptions>());
}

TEST(GradScaler, RefusesConstantsThatLeadNowhere) {
  EXPECT_TRUE(has(error_of([] { GradScaler({.init_scale = 0}); }), "GradScalerOptions.init_scale: must be > 0"));
  EXPECT_TRUE(has(error_of([] { GradScaler({.growth_factor = 1}); }), "GradScalerOptions.growth_factor: must be > 1"));
  EXPECT_TRUE(
      has(error_of([] { GradScaler({.backoff_factor = 1}); }), "GradScalerOptions.backoff_factor: must be < 1"));
  EXPECT_TRUE(has(error_of([] { GradScaler({.growth_interval = 0}); }), "growth_interval: must be >= 1"));
  const std::string inside = error_of([] { MixedPrecision({.scaler = GradScalerOptions{.backoff_factor = 0}}); });
  EXPECT_TRUE(has(inside, "MixedPrecisionOptions.scaler.backoff_factor: must be > 0")) << inside;
}

TEST(GradScaler, DividesGradientsOfEveryTypeByTheScaleAtOnce) {
  GradScaler scaler = used_scaler({.init_scale = 1024});
  const at::Tensor values = torch::tensor({1024.0, -512.0, 3.0});
  std::vector<at::Tensor> params;
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kFloat}) {
    params.push_back(with_gradient(values.to(dtype)));
  }
  params.push_back(torch::ones({2}).requires_grad_());  // without a gradient
  EXPECT_EQ(scaler.unscale_(params).item<float>(), 0);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(torch::equal(params[i].grad().to(at::kDouble), values.to(params[i].dtype()).to(at::kDouble) / 1024))
        << i;
  }
  EXPECT_FALSE(params[4].grad().defined());
}

TEST(GradScaler, DividesByAScaleThatIsNotAPowerOfTwo) {
  GradScaler scaler = used_scaler({.init_scale = 3.0 * 4099});
  const at::Tensor param = with_gradient(torch::tensor({3.0F * 4099 * 7}));
  EXPECT_EQ(scaler.unscale_({param}).item<float>(), 0);
  EXPECT_FLOAT_EQ(param.grad().item<float>(), 7.0F);
}

TEST(GradScaler, FindsInfAndNanInAnyTensorOfAnyType) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (size_t place = 0; place < 3; ++place) {
      GradScaler scaler = used_scaler();
      std::vector<at::Tensor> params = {with_gradient(torch::ones({5})), with_gradient(torch::ones({5}, at::kDouble)),
                                        with_gradient(torch::ones({5}, at::kBFloat16))};
      params[place].mutable_grad()[4] = bad;
      EXPECT_EQ(scaler.unscale_(params).item<float>(), 1) << bad << " " << place;
    }
  }
}

TEST(GradScaler, NeverGrowsToInfinity) {
  GradScaler scaler = used_scaler({.init_scale = std::ldexp(1.0, 127), .growth_interval = 1});
  scaler.update(torch::zeros({1}));
  EXPECT_EQ(scaler.scale_value(), std::ldexp(1.0, 127));
}

TEST(GradScaler, ScalesSmallLossesInFloat32) {
  GradScaler scaler;
  const at::Tensor scaled = scaler.scale(torch::full({1}, 2.0, at::kHalf));
  EXPECT_EQ(scaled.scalar_type(), at::kFloat);
  EXPECT_EQ(scaled.item<float>(), 131072.0F);  // more than float16 holds
  EXPECT_EQ(scaler.scale(torch::ones({}, at::kDouble)).scalar_type(), at::kDouble);
}

TEST(GradScaler, SumsOfSeveralOptimizersMoveTheScaleOnce) {
  GradScaler scaler = used_scaler({.init_scale = 8});
  const at::Tensor good = scaler.unscale_({with_gradient(torch::ones({2}))});
  const at::Tensor bad = scaler.unscale_({with_gradient(torch::full({2}, INFINITY))});
  const at::Tensor worse = scaler.unscale_({with_gradient(torch::full({2}, INFINITY))});
  scaler.update(good + bad + worse);
  EXPECT_EQ(scaler.scale_value(), 4);
}

TEST(GradScaler, ContinuesFromItsState) {
  GradScaler one = used_scaler({.init_scale = 16, .growth_interval = 3});
  one.update(torch::ones({1}));
  one.update(torch::zeros({1}));
  one.update(torch::zeros({1}));
  GradScaler other({.init_scale = 16, .growth_interval = 3});
  other.load_state_dict(one.state_dict());
  EXPECT_EQ(other.scale_value(), 8);
  EXPECT_EQ(other.state_dict().get<int64_t>("growth_tracker"), 2);
  EXPECT_EQ(other.scale(torch::ones({})).item<float>(), 8);
  other.update(torch::zeros({1}));
  EXPECT_EQ(other.scale_value(), 16);
  GradScaler fresh({.init_scale = 32});
  EXPECT_EQ(fresh.state_dict().get<double>("scale"), 32);
  EXPECT_EQ(fresh.state_dict().get<int64_t>("growth_tracker"), 0);
}

TEST(GradScaler, UnscalesGradientsOfACheckpointBeforeTheFirstLoss) {
  const State saved = used_scaler({.init_scale = 16}).state_dict();
  GradScaler scaler;
  scaler.load_state_dict(saved);
  const at::Tensor param = with_gradient(torch::full({2}, 48.0));
  EXPECT_EQ(scaler.unscale_({param}).item<float>(), 0);
  EXPECT_EQ(param.grad()[1].item<float>(), 3);
}

TEST(GradScaler, MovesToTheDeviceOfTheLoss) {
  GradScaler scaler = used_scaler();
  EXPECT_TRUE(scaler.scale(torch::ones({}, at::kMeta)).is_meta());
  EXPECT_TRUE(scaler.scale_tensor().is_meta());
}

TEST(GradScaler, IsPartOfTheStateOfMixedPrecision) {
  const MixedPrecisionOptions options = {.dtype = MixedDtype::float16, .scaler = GradScalerOptions{.init_scale = 64}};
  MixedPrecision one(options), other(options);
  one.scaler()->update(torch::ones({1}));
  other.load_state_dict(one.state_dict());
  EXPECT_EQ(other.scaler()->scale_value(), 32);
  other.load_state_dict(State());  // of a run without a scaler
  EXPECT_EQ(other.scaler()->scale_value(), 32);
}

TEST(GradScaler, CopiesDoNotShareTheirScale) {
  const GradScaler original({.init_scale = 8});
  GradScaler copy = original;
  (void)copy.scale(torch::ones({}));
  copy.update(torch::ones({1}));
  EXPECT_EQ(copy.scale_value(), 4);
  EXPECT_EQ(original.scale_value(), 8);
}

TEST(GradScaler, RefusesGradientsThatItCannotFix) {
  const std::string unscaled = error_of([] { (void)GradScaler().unscale_({with_gradient(torch::ones({2}))}); });
  EXPECT_TRUE(has(unscaled, "never scaled") && has(unscaled, "manual_backward(loss)")) << unscaled;
  GradScaler scaler = used_scaler();
  const std::string half = error_of([&] { (void)scaler.unscale_({with_gradient(torch::ones({2}, at::kHalf))}); });
  EXPECT_TRUE(has(half, "float16") && has(half, "Keep the weights in float32")) << half;
  at::Tensor sparse = torch::zeros({3, 2}).requires_grad_();
  sparse.mutable_grad() = torch::eye(3, 2).to_sparse();
  const std::string text = error_of([&] { (void)scaler.unscale_({sparse}); });
  EXPECT_TRUE(has(text, "sparse") && has(text, "sparse(false)")) << text;
}

TEST(GradScaler, WithoutGradientsTheStepIsGood) {
  GradScaler scaler({.init_scale = 4, .growth_interval = 1});
  const at::Tensor found_inf = scaler.unscale_({torch::ones({2}).requires_grad_()});
  scaler.update(found_inf);
  EXPECT_EQ(scaler.scale_value(), 8);
}

}  // namespace
}  // namespace levin::grad_scaler_test
