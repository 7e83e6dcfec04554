#pragma once

#include <torch/torch.h>

#include <functional>

#include "levin/levin.h"

namespace levin::test {

// Two optimizers that alternate within each step: each backward reaches other parameters than the one before.
class Gan : public LightningModule {
 public:
  explicit Gan(bool toggles) : toggles_(toggles) {
    set_automatic_optimization(false);
    register_module("generator", generator_);
    register_module("discriminator", discriminator_);
  }

  torch::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    const at::Tensor noise = batch[0].slice(1, 0, 4);
    update(0, [&] { return verdict(discriminator_->forward(generator_->forward(noise)), 1); });
    update(1, [&] {
      const at::Tensor fake = discriminator_->forward(generator_->forward(noise).detach());
      return verdict(discriminator_->forward(batch[0]), 1) + verdict(fake, 0);
    });
    if (batch_idx % 3 == 2) update(1, [&] { return discriminator_->forward(batch[0]).square().mean(); });
    return {};
  }

  OptimizerConfig configure_optimizers() override {
    OptimizerConfig both;
    both.add(Adam(generator_->parameters(), {.lr = 0.01}));
    both.add(SGD(discriminator_->parameters(), {.lr = 0.05, .momentum = 0.9}));
    return both;
  }

 private:
  static at::Tensor verdict(const at::Tensor& logits, double truth) {
    return torch::nn::functional::binary_cross_entropy_with_logits(logits, torch::full_like(logits, truth));
  }
  void update(size_t which, const std::function<at::Tensor()>& loss) {
    LightningOptimizer& own = optimizer(which);
    if (toggles_) toggle_optimizer(own);
    own.zero_grad();
    manual_backward(loss());
    own.step();
    if (toggles_) untoggle_optimizer(own);
  }

  bool toggles_;
  torch::nn::Sequential generator_ =
      torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 8));
  torch::nn::Sequential discriminator_ =
      torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
};

}  // namespace levin::test
