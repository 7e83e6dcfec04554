// What the tests on a GPU share: a fixture that opens the component before LibTorch is asked for anything, or skips.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "callbacks/quiet_trainer.h"
#include "levin/core/gpu.h"
#include "levin/optim/adam.h"
#include "levin/optim/sgd.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/trainer.h"
#include "support/tensor_loader.h"
#include "support/trained.h"

namespace levin::test {

class OnGpu : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (why_no_gpu().empty()) (void)open_gpu();
  }
  void SetUp() override {
    const std::string why = why_no_gpu();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

/// A small convolution net for ten classes; the same weights each time it is made.
class SmallNet : public LightningModule {
 public:
  explicit SmallNet(double dropout = 0) : dropout_(dropout) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      const auto numbers = torch::arange(parameter.numel(), torch::kDouble).mul_(0.7).sin_().mul_(0.1);
      parameter.copy_(numbers.view_as(parameter));
    }
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    at::Tensor x = norm->forward(conv->forward(batch[0])).relu().mean({2, 3});
    x = torch::dropout(x, dropout_, /*train=*/true);
    const at::Tensor loss = torch::nn::functional::cross_entropy(last->forward(x), batch[1]);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    return loss;
  }
  void validation_step(const Batch& batch, int64_t) override {
    const at::Tensor x = norm->forward(conv->forward(batch[0])).relu().mean({2, 3});
    log("val_loss", torch::nn::functional::cross_entropy(last->forward(x), batch[1]));
  }
  OptimizerConfig configure_optimizers() override {
    if (make_optimizers) return make_optimizers(*this);
    return AdamW(parameters(), {.lr = 0.0078125});  // exact in float32
  }

  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(3, 16, 3))};
  torch::nn::BatchNorm2d norm{register_module("norm", torch::nn::BatchNorm2d(16))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(16, 10))};
  std::function<OptimizerConfig(SmallNet&)> make_optimizers = nullptr;

 private:
  double dropout_;
};

inline std::shared_ptr<TensorLoader> images(int64_t samples, int64_t batch_size = 8) {
  const auto numbers = torch::arange(samples * 3 * 8 * 8, torch::kDouble).mul_(0.37).sin_();
  return std::make_shared<TensorLoader>(
      std::vector<at::Tensor>{numbers.to(torch::kFloat).view({samples, 3, 8, 8}), torch::arange(samples) % 10},
      batch_size);
}

inline TrainerOptions on_gpu(int64_t epochs) {
  TrainerOptions options = quiet(epochs, {});
  options.accelerator = "gpu";
  options.devices = std::vector<int64_t>{0};
  return options;
}

inline Trained train(SmallNet& module, const TrainerOptions& options, int64_t samples = 64) {
  Trainer trainer(options);
  seed_everything(3);
  trainer.fit(module, images(samples), images(16));
  return trained_by(trainer, module);
}

inline void expect_close(const Trained& one, const Trained& other, double relative, double absolute) {
  for (size_t i = 0; i < one.tensors.size(); ++i) {
    EXPECT_TRUE(torch::allclose(one.tensors[i], other.tensors[i], relative, absolute))
        << "tensor " << i << " differs by " << (one.tensors[i] - other.tensors[i]).abs().max().item<double>();
  }
}

}  // namespace levin::test
