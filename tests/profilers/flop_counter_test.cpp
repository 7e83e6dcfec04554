// FLOPs against the closed forms of torch.utils.flop_counter: 2 m k n for a product of (m, k) and (k, n).
#include "levin/profilers/flop_counter.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "callbacks/quiet_trainer.h"
#include "levin/profilers/peak_flops.h"

namespace levin::flop_counter_test {
namespace {

using namespace test;
namespace F = torch::nn::functional;

int64_t flops_of(const std::function<void()>& body) {
  const FlopCounter counter;
  body();
  return counter.flops();
}

TEST(FlopCounter, CountsMatrixProducts) {
  const auto a = torch::ones({3, 5}), b = torch::ones({5, 7});
  EXPECT_EQ(flops_of([&] { (void)a.mm(b); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops_of([&] { (void)torch::addmm(torch::ones({7}), a, b); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops_of([&] { (void)torch::ones({4, 3, 5}).matmul(torch::ones({4, 5, 7})); }), 4 * 2 * 3 * 5 * 7);
  EXPECT_EQ(flops_of([&] { (void)torch::ones({4, 3, 5}).matmul(b); }), 4 * 2 * 3 * 5 * 7);
  EXPECT_EQ(flops_of([&] { (void)torch::relu(a + 1).sum(); }), 0);
}

TEST(FlopCounter, CountsForwardAndBackwardOfAPerceptron) {
  torch::nn::Sequential net(torch::nn::Linear(10, 20), torch::nn::ReLU(), torch::nn::Linear(20, 3));
  const auto x = torch::ones({8, 10});
  const int64_t first = 2 * 8 * 10 * 20, second = 2 * 8 * 20 * 3;
  EXPECT_EQ(flops_of([&] { (void)net->forward(x); }), first + second);
  // Backward: the weights' gradients of both, the input's of the second.
  EXPECT_EQ(flops_of([&] { net->forward(x).sum().backward(); }), 2 * first + 3 * second);
}

TEST(FlopCounter, CountsConvolutions) {
  const auto x = torch::ones({2, 4, 9, 11}).requires_grad_(true);
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(4, 6, {3, 2}).stride(2).padding(1).groups(2));
  const auto y = conv->forward(x);
  const int64_t once = 2 * 2 * (y.size(2) * y.size(3)) * 6 * (4 / 2) * (3 * 2);
  EXPECT_EQ(flops_of([&] { (void)conv->forward(x); }), once);
  EXPECT_EQ(flops_of([&] { conv->forward(x).sum().backward(); }), 3 * once);
  EXPECT_EQ(flops_of([&] { conv->forward(x.detach()).sum().backward(); }), 2 * once) << "the input needs no gradient";
  torch::nn::ConvTranspose2d up(torch::nn::ConvTranspose2dOptions(4, 6, 3).stride(2));
  EXPECT_EQ(flops_of([&] { (void)up->forward(x); }), 2 * 2 * (9 * 11) * 4 * 6 * 9);
}

TEST(FlopCounter, CountsAttention) {
  const int64_t batch = 2, heads = 3, queries = 16, keys = 24, dim = 8;
  auto make = [&](int64_t length) { return torch::randn({batch, heads, length, dim}).requires_grad_(true); };
  const auto q = make(queries), k = make(keys), v = make(keys);
  const int64_t product = 2 * batch * heads * queries * keys * dim;
  EXPECT_EQ(flops_of([&] { (void)at::scaled_dot_product_attention(q, k, v); }), 2 * product);
  EXPECT_EQ(flops_of([&] { at::scaled_dot_product_attention(q, k, v).sum().backward(); }), 7 * product);
}

TEST(FlopCounter, CountsNothingOfOtherThreadsAndNothingLater) {
  const auto a = torch::ones({3, 3});
  EXPECT_EQ(flops_of([&] { std::thread([&] { (void)a.mm(a); }).join(); }), 0);
  const FlopCounter counter;
  EXPECT_TRUE(has(error_of([] { FlopCounter second; }), "another counter lives"));
  (void)a.mm(a);
  EXPECT_EQ(counter.flops(), 54) << "the second one, that failed, changed nothing";
}

TEST(PeakFlops, BelongToTheDevice) {
  EXPECT_EQ(peak_flops("NVIDIA H200", MatmulType::bfloat16), 989.4e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe", MatmulType::half), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", MatmulType::tf32), 156e12);
  EXPECT_EQ(peak_flops("NVIDIA L4", MatmulType::float32), 30.3e12);
  EXPECT_EQ(peak_flops("NVIDIA L40S", MatmulType::float32), 91.6e12);
  EXPECT_EQ(peak_flops("Tesla V100-PCIE-16GB", MatmulType::float32), 14e12);
  EXPECT_EQ(peak_flops("Tesla T4", MatmulType::bfloat16), std::nullopt) << "it has no units for it";
  EXPECT_EQ(peak_flops("NVIDIA GeForce RTX 4090", MatmulType::bfloat16), 165.2e12);
  EXPECT_EQ(peak_flops("Something A1000", MatmulType::float32), std::nullopt);
}

}  // namespace
}  // namespace levin::flop_counter_test
