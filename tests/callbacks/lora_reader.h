// A module with a layer of each kind that LoRA adapts, in parts that strategies may place: an embedding, a convolution
// over its rows, a linear head.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/optim/adam.h"
#include "levin/trainer/lightning_module.h"
#include "support/tensor_loader.h"

namespace levin::test {

/// The same weights every time. ids (B, 6) of 12 tokens to logits (B, 3).
class Reader : public LightningModule {
 public:
  Reader() {
    torch::manual_seed(7);
    const auto columns = [](const at::Tensor& x) { return x.transpose(1, 2); };
    const auto mean = [](const at::Tensor& x) { return torch::tanh(x).mean(2); };
    tokens = register_module("tokens", torch::nn::Sequential(torch::nn::Embedding(12, 8)));
    conv = register_module("conv", torch::nn::Sequential(torch::nn::Functional(columns),
                                                         torch::nn::Conv1d(torch::nn::Conv1dOptions(8, 10, 3)),
                                                         torch::nn::Functional(mean)));
    head = register_module("head", torch::nn::Sequential(torch::nn::Linear(10, 3)));
  }
  at::Tensor forward(const at::Tensor& ids) override {
    return levin::call(head, levin::call(conv, levin::call(tokens, ids)));
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor loss = torch::nn::functional::cross_entropy(forward(batch[0]), batch[1]);
    losses.push_back(loss.item<float>());
    return loss;
  }
  void validation_step(const Batch& batch, int64_t) override {
    log("val_loss", torch::nn::functional::cross_entropy(forward(batch[0]), batch[1]));
  }
  OptimizerConfig configure_optimizers() override { return AdamW(parameters(), {.lr = 0.02}); }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<Reader>();
  }

  torch::nn::Sequential tokens{nullptr}, conv{nullptr}, head{nullptr};
  std::vector<float> losses = {};
};

/// 24 sequences of 6 tokens; the class is the first token modulo 3.
inline std::shared_ptr<TensorLoader> reader_texts(int64_t batch_size = 4) {
  torch::manual_seed(5);
  const at::Tensor ids = torch::randint(0, 12, {24, 6}, torch::kLong);
  return std::make_shared<TensorLoader>(std::vector<at::Tensor>{ids, ids.select(1, 0).remainder(3)}, batch_size);
}

/// The names of its three layers, in order.
inline std::vector<std::string> reader_layers() {
  return {"tokens.0", "conv.1", "head.0"};
}

}  // namespace levin::test
