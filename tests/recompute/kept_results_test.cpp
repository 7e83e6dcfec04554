// keep: matmul: what matrix products gave is not computed a second time, the rest is.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/precision/autocast.h"
#include "recompute/segments.h"
#include "support/allocations.h"

namespace levin::kept_results_test {
namespace {

using test::error_of;
using test::expect_same_bits;
using test::expect_text;
using test::gradients;
using test::input;
using test::Net;

const SegmentOptions kKeep{.name = "net", .keep = Keep::matmul};

TEST(KeptResults, GiveTheSameBits) {
  Net net(0.5);
  const at::Tensor x = input();
  auto of = net.parameters();
  of.push_back(x);
  const auto plain = gradients(of, [&] { return net.forward(net.forward(x).tanh()); });
  expect_same_bits(gradients(of, [&] { return recompute(kKeep, net, recompute(kKeep, net, x).tanh()); }), plain);
  const auto nested = [&](const at::Tensor& y) { return recompute(net, recompute(kKeep, net, y).tanh()); };
  expect_same_bits(gradients(of, [&] { return recompute(kKeep, nested, x); }), plain);
}

TEST(KeptResults, GiveTheSameBitsInBfloat16) {
  Net net(0.5);
  const at::Tensor x = input();
  const auto run = [&](bool recomputed) {
    return gradients(net.parameters(), [&] {
      const Autocast autocast(at::kCPU, at::kBFloat16, {.cache_enabled = false});
      return (recomputed ? recompute(kKeep, net, x) : net.forward(x)).to(at::kFloat);
    });
  };
  expect_same_bits(run(true), run(false));
}

// Weights that change behind autograd's back between the passes show what was computed again: h = first(x) is kept, so
// the gradient of `scale` in h * scale is that of the first pass; with nothing kept it is that of the changed weight.
TEST(KeptResults, AreNotComputedAgain) {
  for (const Keep keep : {Keep::matmul, Keep::nothing}) {
    torch::nn::Linear first(8, 8);
    const at::Tensor x = input(), scale = torch::ones({8}).set_requires_grad(true);
    auto fn = [first, scale](const at::Tensor& y) mutable { return first->forward(y) * scale; };
    const at::Tensor expected = first->forward(x).sum(0).detach();
    const at::Tensor loss = recompute({.keep = keep}, fn, x).sum();
    first->weight.variable_data().zero_();
    loss.backward();
    EXPECT_EQ(scale.grad().allclose(expected), keep == Keep::matmul);
  }
}

TEST(KeptResults, AreThoseOfEveryKindOfProduct) {
  torch::nn::Conv1d conv(8, 8, 3);
  const at::Tensor x = torch::randn({2, 2, 8, 8}).set_requires_grad(true);
  auto fn = [conv](const at::Tensor& y) mutable {
    const at::Tensor heads = at::scaled_dot_product_attention(y, y.sin(), y.cos(), {}, 0.0, true);
    const at::Tensor more = at::scaled_dot_product_attention(heads, y.sin(), y.cos(), {}, 0.5, true).flatten(0, 1);
    const at::Tensor h = conv->forward(at::baddbmm(more, more, more.transpose(1, 2)));
    return h.bmm(h.transpose(1, 2)).matmul(y.flatten(0, 1)[0].select(1, 0));
  };
  auto of = conv->parameters();
  of.push_back(x);
  const auto plain = gradients(of, [&] { return fn(x); });
  expect_same_bits(gradients(of, [&] { return recompute(kKeep, fn, x); }), plain);
}

TEST(KeptResults, ServeASecondBackward) {
  Net net;
  const at::Tensor x = input();
  const at::Tensor loss = recompute(kKeep, net, x).square().sum();
  const auto first = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
  EXPECT_TRUE(torch::autograd::grad({loss}, {x})[0].equal(first));
}

TEST(KeptResults, CostTheMemoryOfTheProductsAndNoMore) {
  constexpr int64_t kRows = 1024, kWidth = 64, kBytes = kRows * kWidth * 4;
  torch::nn::Linear linear(kWidth, kWidth);
  const at::Tensor x = torch::randn({kRows, kWidth}).set_requires_grad(true);
  auto fn = [linear](const at::Tensor& y) mutable { return linear->forward(y.sin()).tanh().exp().sin(); };
  const auto held = [&](std::optional<Keep> keep) {
    const test::Allocations bytes;
    const at::Tensor result = keep ? recompute({.keep = *keep}, fn, x) : fn(x);
    return bytes.held();
  };
  constexpr int64_t kSmall = 16 * 1024;
  EXPECT_GE(held(std::nullopt), 4 * kBytes);                                 // of sin, tanh, exp and the last sin
  EXPECT_NEAR(static_cast<double>(held(Keep::nothing)), kBytes, kSmall);     // the result
  EXPECT_NEAR(static_cast<double>(held(Keep::matmul)), 2 * kBytes, kSmall);  // and that of the product
}

TEST(KeptResults, ThatAreChangedInPlaceAreAnError) {
  torch::nn::Linear linear(8, 8);
  auto fn = [linear](const at::Tensor& y) mutable { return linear->forward(y).relu_().sin(); };
  const at::Tensor loss = recompute(kKeep, fn, input()).sum();
  expect_text(error_of([&] { loss.backward(); }),
              {"recompute: the result of aten::addmm that net keeps was changed in place", "relu instead of relu_"});
}

TEST(KeptResults, OfAnotherOperatorAreAnError) {
  int64_t calls = 0;
  const at::Tensor weight = torch::randn({8, 8}).set_requires_grad(true);
  const auto fn = [&](const at::Tensor& y) {
    return (calls++ == 0 ? y.mm(weight) : at::addmm(y, y, weight)).sin().cos();
  };
  const at::Tensor loss = recompute(kKeep, fn, input()).sum();
  expect_text(error_of([&] { loss.backward(); }),
              {"recompute: net computes something else the second time: aten::addmm where it was aten::mm"});
}

}  // namespace
}  // namespace levin::kept_results_test
