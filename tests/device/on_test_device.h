// Runs on the test device, and the same on the CPU.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

#include "callbacks/quiet_trainer.h"
#include "levin/core/module_call.h"
#include "levin/optim/adam.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/trainer.h"
#include "support/device/test_device.h"
#include "support/tensor_loader.h"
#include "support/trained.h"

namespace levin::test {

/// Convolution, batch normalization, dropout, two layers; three classes. The same weights each time it is made.
class DeviceNet : public LightningModule {
 public:
  explicit DeviceNet(double dropout = 0) : dropout_(dropout) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      const auto numbers = torch::arange(parameter.numel(), torch::kDouble).mul_(0.7).sin_().mul_(0.25);
      parameter.copy_(numbers.view_as(parameter));
    }
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor loss = torch::nn::functional::cross_entropy(forward(batch[0]), batch[1]);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    return loss;
  }
  void validation_step(const Batch& batch, int64_t) override {
    log("val_loss", torch::nn::functional::cross_entropy(forward(batch[0]), batch[1]));
  }
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor h = norm->forward(conv->forward(x)).relu().flatten(1);
    h = torch::dropout(torch::gelu(levin::call(first, h)), dropout_, is_training());
    return last->forward(h);
  }
  OptimizerConfig configure_optimizers() override {
    if (make_optimizers) return make_optimizers(*this);
    return AdamW(parameters(), {.lr = 0.0078125});
  }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& /*device*/) const override {
    return std::make_shared<DeviceNet>(dropout_);
  }

  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(2, 4, 3))};
  torch::nn::BatchNorm2d norm{register_module("norm", torch::nn::BatchNorm2d(4))};
  torch::nn::Linear first{register_module("first", torch::nn::Linear(64, 16))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(16, 3))};
  std::function<OptimizerConfig(DeviceNet&)> make_optimizers = nullptr;

 private:
  double dropout_;
};

inline std::shared_ptr<TensorLoader> device_data(int64_t samples, int64_t batch_size = 8) {
  const auto numbers = torch::arange(samples * 2 * 6 * 6, torch::kDouble).mul_(0.37).sin_();
  return std::make_shared<TensorLoader>(
      std::vector<at::Tensor>{numbers.to(torch::kFloat).view({samples, 2, 6, 6}), torch::arange(samples) % 3},
      batch_size);
}

inline TrainerOptions on_test_device(int64_t epochs, Callbacks callbacks = {}) {
  TrainerOptions options = quiet(epochs, std::move(callbacks));
  options.accelerator = kTestDevice;
  options.devices = int64_t{1};
  options.record_steps = false;
  options.num_threads = int64_t{2};  // as many as the threads of a device have: sums depend on it
  return options;
}

inline Trained train(DeviceNet& module, const TrainerOptions& options, int64_t samples = 48) {
  Trainer trainer(options);
  seed_everything(3);
  trainer.fit(module, device_data(samples), device_data(16));
  return trained_by(trainer, module);
}

/// The same run on the CPU and on the test device, from the same seed; returns the latter.
inline Trained expect_as_on_the_cpu(const std::function<void(TrainerOptions&)>& set = nullptr,
                                    const std::function<OptimizerConfig(DeviceNet&)>& optimizers = nullptr) {
  std::vector<Trained> runs;
  for (const char* accelerator : {"cpu", kTestDevice}) {
    DeviceNet module;
    module.make_optimizers = optimizers;
    TrainerOptions options = on_test_device(2);
    options.accelerator = accelerator;
    if (set) set(options);
    runs.push_back(train(module, options));
  }
  expect_same_bits(runs[0], runs[1]);
  return runs[1];
}

}  // namespace levin::test
