// Equal to loss.backward(), even if something changes the gradient that it starts from.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "levin/strategies/gradient_sync.h"

namespace levin::loss_gradient_test {
namespace {

at::Tensor parameter(at::IntArrayRef shape) {
  return at::ones(shape).set_requires_grad(true);
}

TEST(LossGradient, GradientsEqualBackwardsStepAfterStep) {
  LossGradient gradient;
  at::Tensor weight = parameter({3});
  for (int step = 1; step <= 3; ++step) {
    gradient.backward(weight.mul(2).sum());
    EXPECT_TRUE(weight.grad().equal(at::ones({3}).mul(2 * step)));
  }
}

TEST(LossGradient, FollowsTheShapeAndTypeOfTheLoss) {
  LossGradient gradient;
  at::Tensor weight = parameter({1, 1});
  gradient.backward(weight.mul(2).sum());
  gradient.backward(weight.mul(2));
  gradient.backward(weight.to(at::kDouble).mul(2).sum());
  EXPECT_EQ(weight.grad().item<float>(), 6);
}

TEST(LossGradient, ALossThatIsAViewOfAParameterKeepsItsGradientToItself) {
  LossGradient gradient;
  at::Tensor weight = parameter({1});
  for (int step = 0; step < 3; ++step) {
    weight.mutable_grad() = at::Tensor();
    gradient.backward(weight.squeeze());
    EXPECT_EQ(weight.grad().item<float>(), 1);
    *weight.mutable_grad().mutable_data_ptr<float>() = 1000;  // as a fused kernel does, which counts no version
  }
}

TEST(LossGradient, AccumulatesALossThatIsAViewOfAParameter) {
  LossGradient gradient;
  at::Tensor weight = parameter({1});
  for (int step = 1; step <= 4; ++step) {
    gradient.backward(weight.squeeze());
    EXPECT_EQ(weight.grad().item<float>(), static_cast<float>(step));
  }
}

TEST(LossGradient, AHookThatWritesToItChangesOneStepOnly) {
  LossGradient gradient;
  at::Tensor weight = parameter({1});
  at::Tensor loss = weight.mul(2).sum();
  loss.register_hook([](const at::Tensor& grad) { grad.mul_(10); });
  gradient.backward(loss);
  EXPECT_EQ(weight.grad().item<float>(), 20);
  gradient.backward(weight.mul(2).sum());
  EXPECT_EQ(weight.grad().item<float>(), 22);
}

TEST(LossGradient, AHookThatKeepsItKeepsAOne) {
  LossGradient gradient;
  at::Tensor weight = parameter({1});
  at::Tensor kept;
  at::Tensor loss = weight.mul(2).sum();
  loss.register_hook([&](const at::Tensor& grad) { kept = grad; });
  gradient.backward(loss);
  *kept.mutable_data_ptr<float>() = 5;
  gradient.backward(weight.mul(2).sum());
  EXPECT_EQ(weight.grad().item<float>(), 4);
}

TEST(LossGradient, RefusesWhatBackwardRefuses) {
  LossGradient gradient;
  EXPECT_THROW(gradient.backward(parameter({3}).mul(2)), c10::Error);
  EXPECT_THROW(gradient.backward(at::ones({})), c10::Error);
  at::Tensor weight = parameter({1});
  gradient.backward(weight.mul(2).sum());
  EXPECT_EQ(weight.grad().item<float>(), 2);
}

}  // namespace
}  // namespace levin::loss_gradient_test
