// The network that predicts a pendulum's next state. It is a model for run files too: see pendulum.yaml.
#pragma once

#include <levin/levin.h>

#include "simulator.h"

namespace pendulum {

class Surrogate : public levin::LightningModule {
 public:
  at::Tensor training_step(const levin::Batch& batch) override {
    const at::Tensor error = forward(batch[0]) - batch[1];
    const at::Tensor loss = (error / kTimeStep).square().mean();
    log("loss", loss);
    return loss;
  }

  /// x: (batch, 3), angle, velocity and torque. Returns (batch, 2): angle and velocity after kTimeStep.
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor angle = x.slice(1, 0, 1);
    const at::Tensor rates = layers_->forward(torch::cat({angle.sin(), angle.cos(), x.slice(1, 1, 3)}, 1));
    return x.slice(1, 0, 2) + kTimeStep * rates;
  }

 private:
  torch::nn::Sequential layers_{register_module(
      "layers", torch::nn::Sequential(torch::nn::Linear(4, 32), torch::nn::Tanh(), torch::nn::Linear(32, 32),
                                      torch::nn::Tanh(), torch::nn::Linear(32, 2)))};
};

}  // namespace pendulum
