// keep: matmul: results of matrix products are not computed a second time, the rest is.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <tuple>
#include <vector>

#include "levin/precision/autocast.h"
#include "recompute/segments.h"
#include "support/allocations.h"

namespace levin::kept_results_test {
namespace {

using test::error_of;
using test::expect_parts;
using test::expect_same_bits;
using test::gradients;
using test::input;
using test::Net;

const SegmentOptions kKeep{.name = "net", .keep = Keep::matmul};

TEST(KeptResults, AreBitwiseIdentical) {
  Net net(0.5);
  const at::Tensor x = input();
  auto of = net.parameters();
  of.push_back(x);
  const auto plain = gradients(of, [&] { return net.forward(net.forward(x).tanh()); });
  expect_same_bits(gradients(of, [&] { return recompute(kKeep, net, recompute(kKeep, net, x).tanh()); }), plain);
  const auto nested = [&](const at::Tensor& y) { return recompute(net, recompute(kKeep, net, y).tanh()); };
  expect_same_bits(gradients(of, [&] { return recompute(kKeep, nested, x); }), plain);
}

TEST(KeptResults, AreBitwiseIdenticalInBfloat16) {
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

// Weights that change without autograd's notice between the passes show what was computed again: h = first(x) is kept,
// so the gradient of `scale` in h * scale is the first pass's; with nothing kept it is the changed weight's.
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

TEST(KeptResults, IncludeEveryKindOfProduct) {
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
  EXPECT_NEAR(static_cast<double>(held(Keep::matmul)), 2 * kBytes, kSmall);  // and the product
}

// Linear multiplies an input of three dimensions first and adds its bias in place, to memory that matmul's product and
// what it returns share without sharing the count of changes.
TEST(KeptResults, ThatAreChangedInPlaceWithinTheSegmentAreCopied) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{4, 8}, {2, 4, 8}, {2, 2, 4, 8}}) {
    Net net(0.5);
    torch::manual_seed(2);
    const at::Tensor x = torch::randn(shape).set_requires_grad(true);
    auto fn = [&net](const at::Tensor& y) { return net.second->forward(net.first->forward(y).relu_()).mul_(2).sin(); };
    auto of = net.parameters();
    of.push_back(x);
    const auto plain = gradients(of, [&] { return fn(x); });
    expect_same_bits(gradients(of, [&] { return recompute(kKeep, fn, x); }), plain);
    const at::Tensor loss = recompute(kKeep, fn, x).sum();
    const auto first = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
    EXPECT_TRUE(torch::autograd::grad({loss}, {x})[0].equal(first));
  }
}

TEST(KeptResults, ThatAreChangedInPlaceCostNoMoreMemory) {
  constexpr int64_t kBytes = 1024 * 64 * 4;
  torch::nn::Linear linear(64, 64);
  const at::Tensor x = torch::randn({4, 256, 64}).set_requires_grad(true);
  const test::Allocations bytes;
  const at::Tensor result = recompute(
      kKeep, [&](const at::Tensor& y) { return linear->forward(y).tanh().sin(); }, x);
  EXPECT_NEAR(static_cast<double>(bytes.held()), 2 * kBytes, 16 * 1024);  // the product and the result
}

TEST(KeptResults, ThatAreChangedInPlaceAfterTheSegmentAreAnError) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{4, 8}, {2, 2, 8}}) {
    torch::nn::Linear linear(torch::nn::LinearOptions(8, 8).bias(false));
    const at::Tensor x = torch::randn(shape).set_requires_grad(true);
    const auto fn = [&](const at::Tensor& y) {
      const at::Tensor h = linear->forward(y);
      return std::make_tuple(h, h.sin().cos());
    };
    auto [product, more] = recompute(kKeep, fn, x);
    const at::Tensor loss = product.mul_(2).sum() + more.sum();
    expect_parts(error_of([&] { loss.backward(); }),
                 {"recompute: the result of aten::mm that net keeps was changed in ", "place after it",
                  "relu instead of relu_"});
  }
}

TEST(KeptResults, ThatAreChangedInPlaceTheSecondTimeAloneAreAnError) {
  torch::nn::Linear linear(8, 8);
  int64_t calls = 0;
  const auto fn = [&](const at::Tensor& y) {
    at::Tensor h = linear->forward(y);
    if (calls++ > 0) h.mul_(1);
    return h.sin().cos();
  };
  const at::Tensor loss = recompute(kKeep, fn, input()).sum();
  expect_parts(error_of([&] { loss.backward(); }),
               {"recompute: net computes something else the second time: aten::mul_ changes a result in place"});
}

TEST(KeptResults, OfADifferentOperatorAreAnError) {
  int64_t calls = 0;
  const at::Tensor weight = torch::randn({8, 8}).set_requires_grad(true);
  const auto fn = [&](const at::Tensor& y) {
    return (calls++ == 0 ? y.mm(weight) : at::addmm(y, y, weight)).sin().cos();
  };
  const at::Tensor loss = recompute(kKeep, fn, input()).sum();
  expect_parts(error_of([&] { loss.backward(); }),
               {"recompute: net computes something else the second time: aten::addmm where it was aten::mm"});
}

}  // namespace
}  // namespace levin::kept_results_test
