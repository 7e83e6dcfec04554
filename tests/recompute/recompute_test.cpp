// levin::recompute: gradients bitwise identical to those without it; the memory it is for; and all kinds of inputs and
// outputs.
#include "levin/recompute/recompute.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "levin/libtorch/graph_nodes.h"
#include "levin/precision/autocast.h"
#include "levin/strategies/device/random_scope.h"
#include "recompute/segments.h"
#include "support/allocations.h"

namespace levin::recompute_test {
namespace {

using test::expect_same_bits;
using test::gradients;
using test::input;
using test::Net;

std::vector<at::Tensor> all_of(const Net& net, const at::Tensor& x) {
  std::vector<at::Tensor> list = net.parameters();
  list.push_back(x);
  return list;
}

TEST(Recompute, GivesTheGradientsWithoutItToTheLastBit) {
  Net net;
  const at::Tensor x = input();
  const auto plain = gradients(all_of(net, x), [&] { return net.forward(net.forward(x).tanh()); });
  net.calls = 0;
  const auto again = gradients(all_of(net, x), [&] { return recompute(net, recompute(net, x).tanh()); });
  EXPECT_EQ(net.calls, 4);
  expect_same_bits(again, plain);
}

TEST(Recompute, RepeatsDropoutAndLeavesTheRandomNumbersThatFollowAlone) {
  Net net(0.5);
  const at::Tensor x = input();
  const auto plain = gradients(all_of(net, x), [&] { return net.forward(net.forward(x)) + torch::rand({4, 8}); });
  const auto again = gradients(all_of(net, x), [&] { return recompute(net, recompute(net, x)) + torch::rand({4, 8}); });
  expect_same_bits(again, plain);
}

TEST(Recompute, RepeatsTheNumbersOfAThreadThatDrawsItsOwn) {
  Net net(0.5);
  const at::Tensor x = input();
  const auto run = [&](bool recomputed) {
    return gradients(all_of(net, x), [&] {
      at::Tensor result;
      std::thread([&] {
        const RandomScope own(17);
        (void)torch::rand({3});
        result = recomputed ? recompute(net, recompute(net, x)) : net.forward(net.forward(x));
      }).join();
      return result;
    });
  };
  expect_same_bits(run(true), run(false));
}

TEST(Recompute, Nests) {
  Net net(0.5);
  const at::Tensor x = input();
  const auto plain = gradients(all_of(net, x), [&] { return net.forward(net.forward(net.forward(x).sin())).exp(); });
  const auto again = gradients(all_of(net, x), [&] {
    return recompute(
        [&](const at::Tensor& y) {
          const at::Tensor inner =
              recompute([&](const at::Tensor& z) { return recompute(net, net.forward(z).sin()); }, y);
          return recompute(net, inner).exp();
        },
        x);
  });
  expect_same_bits(again, plain);
}

TEST(Recompute, TakesAndReturnsSeveralTensorsAndOtherValues) {
  Net net;
  const at::Tensor x = input(), y = input().detach().cos().set_requires_grad(true);
  const auto fn = [&net](const at::Tensor& a, const std::vector<at::Tensor>& more, std::optional<at::Tensor> maybe,
                         const std::string& word, double factor) {
    const at::Tensor h = net.forward(a) * more.at(0).exp() * factor;
    return std::make_tuple(word == "both" ? h + maybe->tanh() : h, std::vector<at::Tensor>{h.sin(), more.at(1) * 2},
                           word.size());
  };
  auto of = all_of(net, x);
  of.push_back(y);
  const auto sum = [](const auto& result) {
    const auto& [one, list, size] = result;
    EXPECT_EQ(size, 4U);
    return one + list.at(0) * list.at(1);
  };
  const std::vector<at::Tensor> more{y, torch::ones({4, 8})};
  const auto plain = gradients(of, [&] { return sum(fn(x, more, std::optional(y), "both", 0.5)); });
  const auto again =
      gradients(of, [&] { return sum(recompute(fn, x, more, std::optional(y), std::string("both"), 0.5)); });
  expect_same_bits(again, plain);
}

TEST(Recompute, TrainsParametersWhereNoInputNeedsAGradient) {
  Net net(0.3);
  const at::Tensor x = input(/*requires_grad=*/false);
  const auto plain = gradients(net.parameters(), [&] { return net.forward(x); });
  net.calls = 0;
  const auto again = gradients(net.parameters(), [&] { return recompute(net, x); });
  EXPECT_EQ(net.calls, 2);
  expect_same_bits(again, plain);
}

TEST(Recompute, GivesEachParameterItsGradientOnce) {
  Net net;
  int64_t times = 0;
  std::vector<GraphNodePtr> accumulators;
  for (const at::Tensor& parameter : net.parameters()) {
    accumulators.push_back(torch::autograd::impl::grad_accumulator(parameter));
    struct Counts : torch::autograd::FunctionPostHook {
      explicit Counts(int64_t& count) : times(count) {}
      torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                                const torch::autograd::variable_list&) override {
        ++times;
        return outputs;
      }
      int64_t& times;
    };
    accumulators.back()->add_post_hook(std::make_unique<Counts>(times));
  }
  const at::Tensor x = input();
  recompute(net, net.forward(recompute(net, x))).sum().backward();
  EXPECT_EQ(times, 4);
}

TEST(Recompute, AsksForGradientsOfSomeInputsOnly) {
  Net net;
  const at::Tensor x = input();
  const at::Tensor plain = torch::autograd::grad({net.forward(x).sum()}, {x})[0];
  const at::Tensor again = torch::autograd::grad({recompute(net, x).sum()}, {x})[0];
  EXPECT_TRUE(again.equal(plain));
  EXPECT_FALSE(net.first->weight.grad().defined());
}

TEST(Recompute, ComputesOnceMoreForASecondBackward) {
  Net net(0.5);
  const at::Tensor x = input();
  torch::manual_seed(3);
  const at::Tensor loss = recompute(net, x).square().sum();
  const auto first = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
  const auto second = torch::autograd::grad({loss}, {x})[0];
  EXPECT_EQ(net.calls, 3);
  EXPECT_TRUE(first.equal(second));
}

TEST(Recompute, HasSecondDerivatives) {
  Net net;
  const at::Tensor x = input();
  const auto penalty = [&](const at::Tensor& y) {
    return torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0].square().sum();
  };
  const auto plain = gradients(all_of(net, x), [&] { return penalty(net.forward(x)); });
  const auto again = gradients(all_of(net, x), [&] { return penalty(recompute(net, x)); });
  expect_same_bits(again, plain);
}

TEST(Recompute, MayRunABackwardWithin) {
  Net net;
  const at::Tensor x = input();
  const auto fn = [&net](const at::Tensor& y) {
    const at::Tensor h = net.forward(y);
    return torch::autograd::grad({h.sin().sum()}, {y}, {}, true, /*create_graph=*/true)[0] * h;
  };
  const auto plain = gradients(all_of(net, x), [&] { return fn(x); });
  const auto again = gradients(all_of(net, x), [&] { return recompute(fn, x); });
  expect_same_bits(again, plain);
}

TEST(Recompute, RepeatsAutocastOutsideOfItsScope) {
  Net net(0.5);
  const at::Tensor x = input();
  for (const bool cached : {false, true}) {
    const auto run = [&](bool recomputed) {
      return gradients(all_of(net, x), [&] {
        const Autocast autocast(at::kCPU, at::kBFloat16, {.cache_enabled = cached});
        const at::Tensor h = recomputed ? recompute(net, x) : net.forward(x);
        EXPECT_EQ(h.scalar_type(), at::kBFloat16);
        return (recomputed ? recompute(net, h) : net.forward(h)).to(at::kFloat);
      });
    };
    expect_same_bits(run(true), run(false));
  }
}

TEST(Recompute, IsAPlainCallWhereNoGraphIsMade) {
  Net net;
  const at::Tensor x = input();
  {
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(recompute(net, x).equal(net.forward(x)));
  }
  const c10::InferenceMode inference;
  EXPECT_TRUE(recompute({.keep = Keep::matmul}, net, x).equal(net.forward(x)));
  EXPECT_EQ(net.calls, 4);
}

TEST(Recompute, TellsWhoAsksThatItComputesAgain) {
  std::vector<bool> seen;
  const at::Tensor x = input();
  recompute(
      [&](const at::Tensor& y) {
        seen.push_back(is_recomputing());
        return y.exp().sin();
      },
      x)
      .sum()
      .backward();
  EXPECT_EQ(seen, (std::vector<bool>{false, true}));
  EXPECT_FALSE(is_recomputing());
}

TEST(Recompute, CallsModulesHoldersAndPointers) {
  torch::nn::Linear linear(8, 8);
  const at::Tensor x = input();
  const at::Tensor expected = linear->forward(x);
  EXPECT_TRUE(recompute(linear, x).equal(expected));
  EXPECT_TRUE(recompute(*linear, x).equal(expected));
  EXPECT_TRUE(recompute(linear.ptr(), x).equal(expected));
  EXPECT_TRUE(recompute(linear.get(), x).equal(expected));
}

TEST(Recompute, UpdatesRunningStatisticsOnce) {
  torch::nn::BatchNorm1d norm(8), plain(8);
  const at::Tensor x = input();
  (plain->forward(x) * x).sum().backward();
  (recompute(norm, x) * x).sum().backward();
  EXPECT_TRUE(norm->running_mean.equal(plain->running_mean));
  EXPECT_TRUE(norm->running_var.equal(plain->running_var));
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
  EXPECT_TRUE(norm->weight.grad().equal(plain->weight.grad()));
}

TEST(Recompute, LeavesNothingBehindAfterAnException) {
  Net net;
  const at::Tensor x = input();
  EXPECT_EQ(test::error_of([&] {
              recompute(
                  [](const at::Tensor& y) -> at::Tensor {
                    (void)y.exp();
                    throw Error("stop");
                  },
                  x);
            }),
            "stop");
  net.calls = 0;
  net.forward(x).sum().backward();
  EXPECT_EQ(net.calls, 1);
}

// Chen et al. 2016: between forward and backward a segment holds its input alone, and in backward what one segment
// keeps. Each layer here keeps one tensor (the result of tanh), and the input is the tensor of the layer before it.
TEST(Recompute, HoldsTheInputsOfSegmentsAndInBackwardOneSegmentMore) {
  constexpr int64_t kBytes = 256 * 1024, kSegments = 6, kLayers = 5;
  const auto layers = [](at::Tensor x) {
    for (int64_t k = 0; k < kLayers; ++k) x = x.tanh();
    return x;
  };
  const at::Tensor x = torch::ones({kBytes / 4}).set_requires_grad(true);
  const auto measure = [&](bool recomputed) {
    test::Allocations bytes;
    at::Tensor y = x;
    for (int64_t k = 0; k < kSegments; ++k) y = recomputed ? recompute(layers, y) : layers(y);
    const at::Tensor ones = torch::ones_like(y);
    y.backward(ones);
    y = at::Tensor();
    return std::pair(bytes.peak(), bytes.held());
  };
  (void)measure(true);
  x.mutable_grad().zero_();
  const auto [plain, plain_held] = measure(false);
  const auto [less, less_held] = measure(true);
  constexpr int64_t kSmall = 64 * 1024;  // random states and other small things
  EXPECT_GE(plain, kSegments * kLayers * kBytes);
  // Outputs of the segments, one segment's layers, the gradients of backward's running operator (ones, in, out).
  EXPECT_LE(less, (kSegments + kLayers + 3) * kBytes + kSmall);
  EXPECT_LE(less_held, plain_held + kSmall);
}

// The state of the CPU's generator takes 5 KB.
TEST(Recompute, KeepsOneRandomStateForSegmentsBetweenWhichNothingIsDrawn) {
  constexpr int64_t kSegments = 20;
  const at::Tensor x = input();
  const auto held = [&](bool draws) {
    const test::Allocations bytes;
    at::Tensor y = x;
    for (int64_t k = 0; k < kSegments; ++k) {
      y = recompute([](const at::Tensor& z) { return z.sin(); }, draws ? y * torch::rand_like(y) : y);
    }
    return bytes.held();
  };
  EXPECT_LT(held(false), kSegments * 1024);
  EXPECT_GT(held(true), kSegments * 5000);
}

TEST(Recompute, SkipsWhatComesAfterTheLastSavedTensor) {
  int64_t ends = 0;
  const at::Tensor x = input();
  recompute(
      [&ends](const at::Tensor& y) {
        const at::Tensor h = y.exp().sin();
        ++ends;
        return h + 1;
      },
      x)
      .sum()
      .backward();
  EXPECT_EQ(ends, 1);
}

}  // namespace
}  // namespace levin::recompute_test
