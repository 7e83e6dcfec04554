// The replaced batch_norm, called through LibTorch's operators as modules call them.
#include "levin/libtorch/batch_norm.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace levin::batch_norm_test {
namespace {

at::Tensor normalized(const at::Tensor& x, bool training) {
  return at::batch_norm(x, {}, {}, at::zeros({3}), at::ones({3}), training, 0.25, 1e-5, false);
}

at::Tensor normalized_by_instance(const at::Tensor& x) {
  return at::instance_norm(x, {}, {}, {}, {}, true, 0.25, 1e-5, false);
}

at::Tensor sevens(const BatchNormCall& call) {
  return at::full_like(call.input, 7);
}

TEST(BatchNormScope, ComputesCallsInTrainingModeWhileItExists) {
  const at::Tensor x = at::rand({4, 3, 2});
  const at::Tensor own = normalized(x, true);
  {
    const BatchNormScope scope(sevens);
    EXPECT_TRUE(normalized(x, true).eq(7).all().item<bool>());
  }
  EXPECT_TRUE(normalized(x, true).equal(own));
}

TEST(BatchNormScope, GetsTheArgumentsOfTheCall) {
  const at::Tensor x = at::rand({4, 3, 2});
  const at::Tensor mean = at::zeros({3}), var = at::ones({3}), weight = at::rand({3});
  int calls = 0;
  const BatchNormScope scope([&](const BatchNormCall& call) -> std::optional<at::Tensor> {
    ++calls;
    EXPECT_TRUE(call.input.is_same(x));
    EXPECT_TRUE(call.weight.value().is_same(weight));
    EXPECT_FALSE(call.bias.has_value() && call.bias->defined());
    EXPECT_TRUE(call.running_mean.value().is_same(mean));
    EXPECT_TRUE(call.running_var.value().is_same(var));
    EXPECT_EQ(call.momentum, 0.25);
    EXPECT_EQ(call.eps, 0.5);
    return call.input;
  });
  (void)at::batch_norm(x, weight, {}, mean, var, true, 0.25, 0.5, false);
  EXPECT_EQ(calls, 1);
}

TEST(BatchNormScope, TheLatestScopeThatComputesACallDoes) {
  const at::Tensor x = at::rand({4, 3, 2});
  const BatchNormScope outer(sevens);
  {
    const BatchNormScope declines([](const BatchNormCall&) { return std::optional<at::Tensor>(); });
    EXPECT_TRUE(normalized(x, true).eq(7).all().item<bool>());
    const BatchNormScope inner([](const BatchNormCall& call) { return std::optional(at::full_like(call.input, 8)); });
    EXPECT_TRUE(normalized(x, true).eq(8).all().item<bool>());
  }
  EXPECT_TRUE(normalized(x, true).eq(7).all().item<bool>());
}

TEST(BatchNormScope, MayBeginAndEndWhileOtherThreadsNormalize) {
  const at::Tensor x = at::rand({4, 3, 2});
  const at::Tensor own = normalized(x, true);
  { const BatchNormScope first(sevens); }  // registers the operator, which no other thread may call meanwhile
  const auto only_here = [here = std::this_thread::get_id()](const BatchNormCall& call) {
    return std::this_thread::get_id() == here ? std::optional(sevens(call)) : std::nullopt;
  };
  bool same = true;
  std::thread other([&] {
    for (int k = 0; k < 200; ++k) same = same && normalized(x, true).equal(own);
  });
  for (int k = 0; k < 200; ++k) {
    const BatchNormScope scope(only_here);
    EXPECT_TRUE(normalized(x, true).eq(7).all().item<bool>());
  }
  other.join();
  EXPECT_TRUE(same);
}

TEST(BatchNormScope, LeavesWhatItDeclinesToLibTorch) {
  const at::Tensor x = at::rand({4, 3, 2});
  const at::Tensor own = normalized(x, true);
  const BatchNormScope scope([](const BatchNormCall&) { return std::optional<at::Tensor>(); });
  EXPECT_TRUE(normalized(x, true).equal(own));
}

TEST(BatchNormScope, LeavesEvaluationAndInstanceNormToLibTorch) {
  const at::Tensor x = at::rand({4, 3, 2});
  const at::Tensor evaluated = normalized(x, false), by_instance = normalized_by_instance(x);
  const BatchNormScope scope(sevens);
  EXPECT_TRUE(normalized(x, false).equal(evaluated));
  EXPECT_TRUE(normalized_by_instance(x).equal(by_instance));
}

}  // namespace
}  // namespace levin::batch_norm_test
