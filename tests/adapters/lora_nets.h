// The module of lora_layers_peers_test.py in C++, with its names: a layer of each kind that LoRA adapts.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "levin/optim/sgd.h"
#include "levin/trainer/lightning_module.h"

namespace levin::test {

/// ids (B, 12) of 12 tokens to logits (B, 3).
struct Layers : torch::nn::Module {
  Layers() {
    namespace nn = torch::nn;
    table = register_module("table", nn::Embedding(nn::EmbeddingOptions(12, 6).padding_idx(2).max_norm(2.0)));
    one = register_module("one", nn::Conv1d(nn::Conv1dOptions(6, 8, 3).stride(2).padding(1)));
    two = register_module("two", nn::Conv2d(nn::Conv2dOptions(1, 4, {3, 2}).padding({1, 0})));
    grouped = register_module("grouped", nn::Conv2d(nn::Conv2dOptions(4, 6, 3).padding(1).groups(2)));
    point = register_module("point", nn::Conv2d(nn::Conv2dOptions(6, 6, 1).bias(false)));
    three = register_module("three", nn::Conv3d(nn::Conv3dOptions(1, 3, 2).padding(1)));
    dilated = register_module("dilated", nn::Conv1d(nn::Conv1dOptions(3, 3, 3).dilation(2)));
    head = register_module("head", nn::Linear(3, 3));
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = one->forward(table->forward(ids).transpose(1, 2));                 // (B, 8, 6)
    x = torch::tanh(point->forward(grouped->forward(two->forward(x.unsqueeze(1)))));  // (B, 6, 8, 5)
    x = torch::tanh(three->forward(x.unsqueeze(1))).flatten(2);
    return head->forward(torch::tanh(dilated->forward(x)).mean(2));
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Conv1d one{nullptr}, dilated{nullptr};
  torch::nn::Conv2d two{nullptr}, grouped{nullptr}, point{nullptr};
  torch::nn::Conv3d three{nullptr};
  torch::nn::Linear head{nullptr};
};

/// Trains it with plain SGD.
class LayersModule : public LightningModule {
 public:
  explicit LayersModule(double lr) : lr_(lr), model_(register_module("model", std::make_shared<Layers>())) {}
  at::Tensor forward(const at::Tensor& ids) override { return model_->forward(ids); }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    return torch::nn::functional::cross_entropy(forward(batch[0]), batch[1]);
  }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = lr_}); }
  [[nodiscard]] const std::shared_ptr<Layers>& model() const { return model_; }

 private:
  double lr_;
  std::shared_ptr<Layers> model_;
};

}  // namespace levin::test
