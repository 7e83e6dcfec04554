#include "thousand_layers.h"

LEVIN_REGISTER_MODEL(ThousandLayers, "a chain of 1000 linear layers, recomputed in segments");

ThousandLayers::ThousandLayers(ThousandLayersOptions options)
    : options_(levin::checked(options, "ThousandLayersOptions")) {
  const int64_t width = options_.width;
  first_ = register_module("first", torch::nn::Linear(options_.in_features, width));
  layers_ = register_module("layers", torch::nn::Sequential());
  for (int64_t k = 0; k < options_.layers; ++k) {
    torch::nn::Linear layer(width, width);
    torch::nn::init::orthogonal_(layer->weight);
    torch::nn::init::zeros_(layer->bias);
    layers_->push_back(layer);
  }
  last_ = register_module("last", torch::nn::Linear(width, options_.num_classes));
  save_hyperparameters(options_);
}

torch::Tensor ThousandLayers::forward(const torch::Tensor& x) {
  return last_->forward(layers_->forward(first_->forward(x.flatten(1))));
}

torch::Tensor ThousandLayers::training_step(const levin::Batch& batch) {
  auto [x, y] = batch.unpack<2>();
  auto loss = torch::nn::functional::cross_entropy(forward(x), y);
  log("train_loss", loss, {.prog_bar = true});
  return loss;
}

void ThousandLayers::validation_step(const levin::Batch& batch) {
  auto [x, y] = batch.unpack<2>();
  log("val_acc", (forward(x).argmax(1) == y).to(torch::kFloat).mean(), {.prog_bar = true, .sync_dist = true});
}

levin::OptimizerConfig ThousandLayers::configure_optimizers() {
  return levin::SGD(parameters(), {.lr = options_.lr});
}
