#include "c/guest_model.h"

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include "levin/core/options/registry.h"
#include "levin/trainer/lightning_module.h"

namespace levin::test {

namespace {

class GuestTestModel : public LightningModule {
 public:
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor loss = loss_of(batch);
    log("train_loss", loss);
    return loss;
  }
  void validation_step(const Batch& batch, int64_t) override { log("val_loss", loss_of(batch)); }
  at::Tensor forward(const at::Tensor& x) override { return layer->forward(x); }

 private:
  at::Tensor loss_of(const Batch& batch) {
    const bool is_named = batch.structure() != nullptr;
    return torch::nn::functional::mse_loss(forward(is_named ? batch["x"] : batch[0]), is_named ? batch["y"] : batch[1]);
  }

  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(4, 1))};
};

LEVIN_REGISTER_MODEL(GuestTestModel, "one layer");

}  // namespace

std::string guest_run_file(const std::string& trainer) {
  return "seed_everything: 1\nmodel: GuestTestModel\noptimizer: {class_path: SGD, init_args: {lr: 0.1}}\n"
         "trainer:\n  accelerator: cpu\n  devices: 1\n  logger: false\n" +
         trainer;
}

GuestBatch::GuestBatch() {
  for (int k = 0; k < 16; ++k) x.push_back(static_cast<float>(k % 5) / 4);
  for (int k = 0; k < 4; ++k) y.push_back(static_cast<float>(k) / 4);
  const int64_t x_shape[] = {4, 4};
  const int64_t y_shape[] = {4, 1};
  (void)levin_tensor_from_data(x.data(), LEVIN_FLOAT32, 2, x_shape, nullptr, &handles_[0]);
  (void)levin_tensor_from_data(y.data(), LEVIN_FLOAT32, 2, y_shape, nullptr, &handles_[1]);
}

GuestBatch::~GuestBatch() {
  for (levin_tensor* handle : handles_) (void)levin_tensor_free(handle);
}

}  // namespace levin::test
