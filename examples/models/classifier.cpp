#include "classifier.h"

namespace nn = torch::nn;
namespace F = torch::nn::functional;

LEVIN_REGISTER_MODEL(Classifier, "classifies 28 x 28 images: a multilayer perceptron or a small CNN");

Classifier::Classifier(ClassifierOptions options) : options_(levin::checked(std::move(options), "ClassifierOptions")) {
  const int64_t hidden = options_.hidden;
  if (options_.arch == "mlp") {
    net_ = nn::Sequential(nn::Flatten(), nn::Linear(784, hidden), nn::ReLU(), nn::Dropout(options_.dropout),
                          nn::Linear(hidden, options_.num_classes));
  } else {
    net_ = nn::Sequential(nn::Unflatten(nn::UnflattenOptions(1, {1, 28, 28})),
                          nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)), nn::ReLU(), nn::MaxPool2d(2),
                          nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)), nn::ReLU(), nn::MaxPool2d(2),
                          nn::Flatten(), nn::Linear(32 * 7 * 7, hidden), nn::ReLU(), nn::Dropout(options_.dropout),
                          nn::Linear(hidden, options_.num_classes));
  }
  register_module("net", net_);
  save_hyperparameters(options_);
}

torch::Tensor Classifier::forward(const torch::Tensor& x) {
  return net_->forward(x.flatten(1));
}

torch::Tensor Classifier::training_step(const levin::Batch& batch) {
  auto [x, y] = batch.unpack<2>();
  auto loss = F::cross_entropy(forward(x), y, F::CrossEntropyFuncOptions().label_smoothing(options_.label_smoothing));
  log("train_loss", loss, {.prog_bar = true});
  return loss;
}

void Classifier::evaluate(const levin::Batch& batch, const std::string& stage) {
  auto [x, y] = batch.unpack<2>();
  auto logits = forward(x);
  log(stage + "_loss", F::cross_entropy(logits, y), {.prog_bar = true, .sync_dist = true});
  log(stage + "_acc", (logits.argmax(1) == y).to(torch::kFloat).mean(), {.prog_bar = true, .sync_dist = true});
}

void Classifier::validation_step(const levin::Batch& batch) {
  evaluate(batch, "val");
}
void Classifier::test_step(const levin::Batch& batch) {
  evaluate(batch, "test");
}
torch::Tensor Classifier::predict_step(const levin::Batch& batch) {
  return forward(batch[0]).argmax(1);
}

levin::OptimizerConfig Classifier::configure_optimizers() {
  return levin::AdamW(parameters(), {.lr = options_.lr, .weight_decay = options_.weight_decay});
}
