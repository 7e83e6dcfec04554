// A module with two submodules called through levin::call, for tests of placement and pipelines.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/optim/sgd.h"
#include "levin/strategies/device/single_device.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/trainer.h"
#include "support/error_text.h"
#include "support/tensor_loader.h"

namespace levin::test {

class PartedModule : public LightningModule {
 public:
  explicit PartedModule(double dropout = 0) {
    torch::manual_seed(1);
    encoder = register_module(
        "encoder", torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::Dropout(dropout), torch::nn::Tanh()));
    decoder = register_module("decoder", torch::nn::Sequential(torch::nn::Linear(8, 3)));
  }
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor hidden = levin::call(encoder, x);
    if (on_encode) on_encode();
    return direct ? decoder->forward(hidden) : levin::call(decoder, hidden);
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor loss = torch::nn::functional::cross_entropy(forward(batch[0]), batch[1]);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    log("rows", static_cast<double>(batch.size()), {.on_step = true, .on_epoch = true, .reduce_fx = ReduceFx::sum});
    return loss;
  }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1, .momentum = 0.9}); }

  torch::nn::Sequential encoder = nullptr, decoder = nullptr;
  bool direct = false;                        // calls the decoder without levin::call
  std::function<void()> on_encode = nullptr;  // between the parts
};

/// x: (samples, 8) random, y: (samples) of three classes.
inline std::shared_ptr<TensorLoader> classes(int64_t samples, int64_t batch) {
  torch::manual_seed(0);
  const at::Tensor x = torch::rand({samples, 8});
  return std::make_shared<TensorLoader>(std::vector<at::Tensor>{x, torch::arange(samples).remainder(3)}, batch);
}

inline TrainerOptions parts_options(std::shared_ptr<Strategy> strategy, int64_t devices) {
  TrainerOptions options;
  options.devices = devices;
  options.strategy = std::move(strategy);
  options.max_epochs = 2;
  options.logger = false;
  options.enable_checkpointing = options.enable_progress_bar = options.enable_model_summary = false;
  options.num_sanity_val_steps = 0;
  return options;
}

inline at::Tensor weights(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const auto& parameter : module.parameters()) all.push_back(parameter.detach().flatten().to(at::kDouble));
  return torch::cat(all);
}

}  // namespace levin::test
