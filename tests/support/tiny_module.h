// The smallest module that trains: Linear(4, 1) on fixed numbers, the same as in the conformance
// scenarios.
//
//   TinyModule module;
//   trainer.fit(module, tiny_loader(24), tiny_loader(16));
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/optim/sgd.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"
#include "support/tensor_loader.h"

namespace levin::test {

/// x[i][j] = ((7 i + 3 j) mod 17) / 17 - 0.5, y[i] = (i mod 5) / 5.
inline std::shared_ptr<TensorLoader> tiny_loader(int64_t samples, int64_t batch_size = 4) {
  const at::Tensor i = torch::arange(samples).unsqueeze(1), j = torch::arange(4).unsqueeze(0);
  const at::Tensor x = (i * 7 + j * 3).remainder(17).to(at::kFloat) / 17 - 0.5;  // (samples, 4)
  return std::make_shared<TensorLoader>(std::vector<at::Tensor>{x, i.remainder(5).to(at::kFloat) / 5}, batch_size);
}

class TinyModule : public LightningModule {
 public:
  TinyModule() {
    const torch::NoGradGuard no_grad;
    layer->weight.copy_(torch::tensor({{0.01F, 0.02F, 0.03F, 0.04F}}));
    layer->bias.zero_();
  }

  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    if (on_training_step) on_training_step(batch_idx);
    const at::Tensor result = loss(batch);
    log("train_loss", result, {.prog_bar = true});
    return result;
  }
  void validation_step(const Batch& batch, int64_t) override {
    log("val_loss", loss(batch), {.prog_bar = true});
    if (!table.empty()) log("v", table[std::min<size_t>(static_cast<size_t>(current_epoch()), table.size() - 1)]);
  }
  void test_step(const Batch& batch, int64_t) override { log("test_loss", loss(batch)); }
  at::Tensor forward(const at::Tensor& x) override { return layer->forward(x); }
  OptimizerConfig configure_optimizers() override {
    if (make_optimizers) return make_optimizers(*this);
    return SGD(parameters(), {.lr = 0.1});
  }

  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(4, 1))};
  std::vector<double> table = {};  // validation logs "v": one value per epoch, the last one repeated
  std::function<void(int64_t)> on_training_step = nullptr;
  std::function<OptimizerConfig(TinyModule&)> make_optimizers = nullptr;

 private:
  at::Tensor loss(const Batch& batch) { return torch::mse_loss(layer->forward(batch[0]), batch[1]); }
};

}  // namespace levin::test
