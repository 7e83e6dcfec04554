// benchmark, float32_matmul_precision and channels_last: in force while a run lasts.
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "support/tiny_module.h"

namespace levin::backend_settings_test {
namespace {

using namespace test;

struct Seen {
  bool benchmark = false;
  at::Float32MatmulPrecision precision = at::Float32MatmulPrecision::HIGHEST;
  bool deterministic = false;
  bool warns_only = false;
  static Seen now() {
    const at::Context& context = at::globalContext();
    return {context.benchmarkCuDNN(), context.float32MatmulPrecision(), context.deterministicAlgorithms(),
            context.deterministicAlgorithmsWarnOnly()};
  }
  bool operator==(const Seen&) const = default;
};

Seen during(TrainerOptions options, bool fails = false) {
  TinyModule module;
  Seen seen;
  module.on_training_step = [&](int64_t) {
    seen = Seen::now();
    if (fails) throw Error("enough");
  };
  options.limit_train_batches = int64_t{1};
  const std::string error = error_of([&] { Trainer(options).fit(module, tiny_loader(24)); });
  EXPECT_EQ(error, fails ? "training_step, epoch 0, batch 0, global step 0: enough" : "");
  return seen;
}

TEST(BackendSettings, HoldWhileTheRunLastsAndNoLonger) {
  const Seen before = Seen::now();
  TrainerOptions options = quiet(1, {});
  options.benchmark = true;
  options.float32_matmul_precision = MatmulPrecision::medium;
  EXPECT_EQ(during(options), (Seen{true, at::Float32MatmulPrecision::MEDIUM}));
  EXPECT_EQ(Seen::now(), before);
  options.float32_matmul_precision = MatmulPrecision::high;
  EXPECT_EQ(during(options, /*fails=*/true), (Seen{true, at::Float32MatmulPrecision::HIGH}));
  EXPECT_EQ(Seen::now(), before) << "also after an error";
}

TEST(BackendSettings, DeterministicAlgorithmsEndWithTheRun) {
  TrainerOptions options = quiet(1, {});
  EXPECT_FALSE(during(options).deterministic);
  options.deterministic = true;
  const Seen strict = during(options);
  EXPECT_TRUE(strict.deterministic);
  EXPECT_FALSE(strict.warns_only);
  options.deterministic = "warn";
  EXPECT_TRUE(during(options).warns_only);
  EXPECT_FALSE(Seen::now().deterministic);
}

TEST(BackendSettings, StayUnchangedUnlessTheyAreAskedFor) {
  at::globalContext().setBenchmarkCuDNN(true);
  EXPECT_TRUE(during(quiet(1, {})).benchmark);
  TrainerOptions off = quiet(1, {});
  off.benchmark = false;
  EXPECT_FALSE(during(off).benchmark);
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN());
  at::globalContext().setBenchmarkCuDNN(false);
}

TEST(BackendSettings, WhatTheProgramSetsDuringARunStays) {
  TinyModule module;
  module.on_training_step = [](int64_t) { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true); };
  Trainer(quiet(1, {})).fit(module, tiny_loader(4));
  EXPECT_TRUE(Seen::now().warns_only);
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
}

struct Cnn : LightningModule {
  Cnn() {
    torch::NoGradGuard no_grad;
    for (auto& parameter : parameters())
      parameter.copy_(torch::linspace(-0.1, 0.12, parameter.numel()).view_as(parameter));
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    layout = batch[0].is_contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor out = conv->forward(batch[0]).relu().mean({2, 3});
    return torch::mse_loss(last->forward(out), batch[1]);
  }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.01, .momentum = 0.9}); }
  bool layout = false;
  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(3, 8, 3))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(8, 1))};
};

TEST(ChannelsLast, LaysOutImagesAndWeightsAndTrainsToTheSameWithinRounding) {
  const at::Tensor images = torch::linspace(-1, 1, 16 * 3 * 6 * 6).view({16, 3, 6, 6}).sin();
  const at::Tensor targets = torch::linspace(0, 1, 16).unsqueeze(1);
  auto train = [&](Cnn& module, bool channels_last) {
    TrainerOptions options = quiet(3, {});
    options.channels_last = channels_last;
    Trainer(options).fit(module, std::make_shared<TensorLoader>(std::vector<at::Tensor>{images, targets}, 4));
  };
  Cnn plain, last;
  train(plain, false);
  train(last, true);
  EXPECT_FALSE(plain.layout);
  EXPECT_TRUE(last.layout);
  EXPECT_TRUE(last.conv->weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(torch::allclose(plain.conv->weight, last.conv->weight, 1e-4, 1e-6));
  EXPECT_TRUE(torch::allclose(plain.last->weight, last.last->weight, 1e-4, 1e-6));
}

}  // namespace
}  // namespace levin::backend_settings_test
