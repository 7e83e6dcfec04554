// Conditions that would make recomputation wrong are detected: tensors that are changed in place, and passes that
// differ.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "recompute/segments.h"

namespace levin::recompute_changes_test {
namespace {

using test::error_of;
using test::expect_parts;
using test::input;
using test::Net;

TEST(RecomputeChanges, AnInputThatTheSegmentChangesIsAnErrorAtOnce) {
  const at::Tensor x = input(/*requires_grad=*/false), y = input();
  const std::string text = error_of([&] {
    recompute(
        {.name = "mixer"},
        [](const at::Tensor& a, const at::Tensor& b) {
          b.mul_(2);
          return a * b;
        },
        y, x);
  });
  expect_parts(text, {"recompute: mixer has changed its input 1, of shape (4, 8), in place", "x.clone()"});
}

TEST(RecomputeChanges, AnInputThatIsChangedUntilBackwardIsAnError) {
  Net net;
  const at::Tensor x = input(/*requires_grad=*/false);
  const at::Tensor loss = recompute({.name = "net"}, net, x).sum();
  const auto version = x._version();
  x.add_(1);
  expect_parts(
      error_of([&] { loss.backward(); }),
      {"recompute: input 0 of net is not what it was", "changed in place between its forward pass and backward",
       "x.clone()", "version " + std::to_string(version + 1) + "; expected version " + std::to_string(version)});
}

TEST(RecomputeChanges, AWeightThatIsChangedUntilBackwardIsAnError) {
  Net net;
  const at::Tensor loss = recompute({.name = "net"}, net, input()).sum();
  const auto version = net.second->weight._version();
  {
    const torch::NoGradGuard no_grad;
    net.second->weight.add_(1);
  }
  expect_parts(
      error_of([&] { loss.backward(); }),
      {"recompute: a weight of net, of shape (16, 8), was changed in place",
       "version " + std::to_string(version) + ", now " + std::to_string(version + 1), "Update weights after backward"});
}

TEST(RecomputeChanges, ASavedTensorThatTheSegmentChangesIsAnError) {
  const at::Tensor loss = recompute(
                              {.name = "net"},
                              [](const at::Tensor& x) {
                                const at::Tensor h = x.exp();  // saves its result
                                const at::Tensor y = h.sin();  // saves h
                                h.add_(1);
                                return y.cos() + h;  // saves y
                              },
                              input())
                              .sum();
  expect_parts(error_of([&] { loss.backward(); }),
               {"recompute: net saves a tensor of shape (4, 8) for backward and changes it in place afterwards"});
}

TEST(RecomputeChanges, OperationsInPlaceThatHarmNothingMayStay) {
  const auto fn = [](const at::Tensor& x) {
    at::Tensor h = x * 2;
    h.add_(1).relu_();
    return h.sigmoid() * x;
  };
  const at::Tensor x = input();
  const auto plain = test::gradients({x}, [&] { return fn(x); });
  const auto again = test::gradients({x}, [&] { return recompute(fn, x); });
  test::expect_same_bits(again, plain);
}

TEST(RecomputeChanges, APassThatDiffersIsAnErrorWithTheDifference) {
  int64_t calls = 0;
  const auto shapes = [&calls](const at::Tensor& x) { return x.narrow(0, 0, 4 - calls++).exp().sin(); };
  at::Tensor loss = recompute({.name = "odd"}, shapes, input()).sum();
  expect_parts(error_of([&] { loss.backward(); }), {"recompute: odd computes something else the second time",
                                                    "(3, 8) Float where it was (4, 8) Float", "depend on its inputs"});
  calls = 0;
  const auto fewer = [&calls](const at::Tensor& x) { return calls++ == 0 ? x.exp().sin() : x * 2; };
  loss = recompute({.name = "odd"}, fewer, input()).sum();
  expect_parts(error_of([&] { loss.backward(); }),
               {"odd computes something else the second time", "saved 2 tensors for backward, and now 0"});
}

TEST(RecomputeChanges, WhatTheSegmentThrowsTheSecondTimeReachesTheCaller) {
  int64_t calls = 0;
  const at::Tensor loss = recompute(
                              [&calls](const at::Tensor& x) {
                                if (calls++ == 1) throw Error("the second time");
                                return x.exp();
                              },
                              input())
                              .sum();
  expect_parts(error_of([&] { loss.backward(); }), {"the second time"});
  EXPECT_FALSE(is_recomputing());
}

}  // namespace
}  // namespace levin::recompute_changes_test
