// A user's shared library: the model of the run file that the programs of tests/c train.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "levin/core/options/registry.h"
#include "levin/trainer/lightning_module.h"

namespace {

class GuestModel : public levin::LightningModule {
 public:
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    const at::Tensor loss = loss_of(batch);
    log("train_loss", loss);
    return loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override { log("val_loss", loss_of(batch)); }
  at::Tensor forward(const at::Tensor& x) override { return layers->forward(x); }

 private:
  at::Tensor loss_of(const levin::Batch& batch) { return torch::nn::functional::mse_loss(forward(batch[0]), batch[1]); }

  torch::nn::Sequential layers{register_module(
      "layers", torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1)))};
};

LEVIN_REGISTER_MODEL(GuestModel, "a small network");

}  // namespace
