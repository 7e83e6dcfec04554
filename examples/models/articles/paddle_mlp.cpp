#include "paddle_mlp.h"

LEVIN_REGISTER_MODEL(PaddleMlp, "the fully connected network of Paddle's page on recomputation");

PaddleMlp::PaddleMlp(PaddleMlpOptions options) : options_(levin::checked(options, "PaddleMlpOptions")) {
  const int64_t hidden = options_.hidden;
  net_ = register_module("net", torch::nn::Sequential());
  net_->push_back("fc_1", torch::nn::Linear(options_.in_features, hidden));
  net_->push_back("relu_1", torch::nn::ReLU());
  net_->push_back("fc_2", torch::nn::Linear(hidden, hidden));
  net_->push_back("relu_2", torch::nn::ReLU());
  net_->push_back("fc_3", torch::nn::Linear(hidden, hidden));
  net_->push_back("relu_3", torch::nn::ReLU());
  net_->push_back("pred", torch::nn::Linear(hidden, options_.num_classes));
  save_hyperparameters(options_);
}

torch::Tensor PaddleMlp::forward(const torch::Tensor& x) {
  return net_->forward(x.flatten(1));
}

torch::Tensor PaddleMlp::training_step(const levin::Batch& batch) {
  auto [x, y] = batch.unpack<2>();
  auto loss = torch::nn::functional::cross_entropy(forward(x), y);  // softmax and loss: after the last checkpoint
  log("train_loss", loss, {.prog_bar = true});
  return loss;
}

void PaddleMlp::validation_step(const levin::Batch& batch) {
  auto [x, y] = batch.unpack<2>();
  log("val_acc", (forward(x).argmax(1) == y).to(torch::kFloat).mean(), {.prog_bar = true, .sync_dist = true});
}

levin::OptimizerConfig PaddleMlp::configure_optimizers() {
  return levin::Adam(parameters(), {.lr = options_.lr});
}
