// Clipping against torch::nn::utils.
#include "levin/optim/clip_grad.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/core/options/error.h"
#include "levin/strategies/rank_collectives.h"
#include "levin/trainer/state/sharded_state.h"

namespace levin::clip_grad_test {
namespace {

std::vector<at::Tensor> with_gradients(at::ScalarType type = at::kFloat) {
  torch::manual_seed(3);
  std::vector<at::Tensor> params;
  for (const int64_t size : {3, 40, 1, 7}) {
    params.push_back(torch::zeros({size, 2}, type).requires_grad_(true));
    if (size != 1) params.back().mutable_grad() = torch::randn({size, 2}).to(type);
  }
  return params;
}

TEST(ClipGradNorm, EqualsTorchForEveryNorm) {
  for (const double norm_type : {1.0, 2.0, 3.5, std::numeric_limits<double>::infinity()}) {
    for (const double max_norm : {0.0, 0.5, 1e4}) {
      auto ours = with_gradients();
      auto theirs = with_gradients();
      const at::Tensor norm = clip_grad_norm_(ours, max_norm, norm_type);
      const double expected = torch::nn::utils::clip_grad_norm_(theirs, max_norm, norm_type);
      EXPECT_NEAR(norm.item<double>(), expected, 1e-5 * expected);
      for (size_t i = 0; i < ours.size(); ++i) {
        if (!ours[i].grad().defined()) continue;
        EXPECT_TRUE(at::allclose(ours[i].grad(), theirs[i].grad(), 1e-5, 1e-7)) << norm_type << " " << max_norm;
      }
    }
  }
}

// A layer with two names: PyTorch's parameters() lists its tensors once.
TEST(ClipGrad, CountsATensorThatIsListedTwiceOnce) {
  const auto make = [] { return std::vector<at::Tensor>{torch::zeros({1}), torch::zeros({1})}; };
  auto params = make();
  params[0].mutable_grad() = torch::tensor({3.0F});
  params[1].mutable_grad() = torch::tensor({4.0F});
  const at::Tensor norm = clip_grad_norm_({params[0], params[1], params[0]}, 1.0);
  EXPECT_NEAR(norm.item<double>(), 5, 1e-6);  // sqrt(3² + 4²), and not sqrt(2 · 3² + 4²)
  EXPECT_NEAR(params[0].grad().item<double>(), 0.6, 1e-5);
  EXPECT_NEAR(params[1].grad().item<double>(), 0.8, 1e-5);
}

TEST(ClipGradNorm, TakesMixedTypes) {
  auto params = with_gradients();
  auto half = with_gradients(at::kBFloat16);
  params.insert(params.end(), half.begin(), half.end());
  const double before = clip_grad_norm_(params, 1.0).item<double>();
  EXPECT_GT(before, 1.0);
  EXPECT_NEAR(clip_grad_norm_(params, 1.0).item<double>(), 1.0, 0.01);
  EXPECT_EQ(half[0].grad().scalar_type(), at::kBFloat16);
}

TEST(ClipGradNorm, IsZeroWithoutGradients) {
  EXPECT_EQ(clip_grad_norm_({}, 1.0).item<double>(), 0);
  EXPECT_EQ(clip_grad_norm_({torch::ones({2})}, 1.0).item<double>(), 0);
}

TEST(ClipGradNorm, RefusesWhatMakesNoSense) {
  auto params = with_gradients();
  EXPECT_THROW(clip_grad_norm_(params, -1.0), Error);
  params[0].mutable_grad()[0][0] = std::nan("");
  EXPECT_TRUE(std::isnan(clip_grad_norm_(params, 1.0).item<double>()));
  try {
    clip_grad_norm_(params, 1.0, 2, true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("nan"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("error_if_nonfinite"), std::string::npos) << error.what();
  }
}

TEST(ClipGradValue, EqualsTorch) {
  auto ours = with_gradients();
  auto theirs = with_gradients();
  clip_grad_value_(ours, 0.3);
  torch::nn::utils::clip_grad_value_(theirs, 0.3);
  for (size_t i = 0; i < ours.size(); ++i) {
    if (!ours[i].grad().defined()) continue;
    EXPECT_TRUE(at::equal(ours[i].grad(), theirs[i].grad()));
  }
  EXPECT_THROW(clip_grad_value_(ours, -1.0), Error);
}

// What this rank sends, instead of other ranks.
class SentNorm final : public RankCollectives {
 public:
  [[nodiscard]] int64_t rank() const override { return 0; }
  [[nodiscard]] int64_t world_size() const override { return 2; }
  at::Tensor reduce(const at::Tensor& value, ReduceOp) override { return value; }
  at::Tensor sum_on_device(const at::Tensor& value) override {
    sent = value;
    return value.clone();
  }
  bool any(bool value) override { return value; }
  void barrier() override {}
  at::Tensor sent;
};

TEST(NormOverRanks, IsSentAlikeByARankWithoutGradients) {
  // Two ranks with the same parameters, of which the first has gradients of some and the second of none.
  for (const auto& [types, sent] :
       std::vector<std::pair<std::vector<at::ScalarType>, at::ScalarType>>{{{at::kFloat}, at::kFloat},
                                                                           {{at::kDouble}, at::kDouble},
                                                                           {{at::kBFloat16, at::kFloat}, at::kFloat},
                                                                           {{at::kBFloat16}, at::kFloat},
                                                                           {{at::kFloat, at::kDouble}, at::kDouble}}) {
    std::vector<at::Tensor> with, without;
    for (const at::ScalarType type : types) {
      with.push_back(torch::zeros({2}, type).requires_grad_());
      without.push_back(torch::zeros({2}, type).requires_grad_());
    }
    with[0].mutable_grad() = torch::tensor({3.0, 4.0}).to(types[0]);
    SentNorm one, other;
    EXPECT_EQ(norm_over_ranks(one, with).item<double>(), 5);
    EXPECT_EQ(norm_over_ranks(other, without).item<double>(), 0);
    EXPECT_EQ(one.sent.scalar_type(), sent);
    EXPECT_EQ(other.sent.scalar_type(), sent);
  }
  // The device is the parameters'; meta stands in for a GPU, whose ranks have a group of their own.
  SentNorm on_device;
  (void)norm_over_ranks(on_device, {torch::zeros({2}, at::TensorOptions(at::kMeta))});
  EXPECT_TRUE(on_device.sent.is_meta());
}

}  // namespace
}  // namespace levin::clip_grad_test
