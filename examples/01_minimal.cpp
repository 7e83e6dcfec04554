// Trains a classifier on Fashion-MNIST and tests it: the whole program.
#include <levin/train.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <iostream>

struct Classifier : levin::LightningModule {
  torch::nn::Sequential net = register_module(
      "net", torch::nn::Sequential(torch::nn::Linear(784, 128), torch::nn::ReLU(), torch::nn::Linear(128, 10)));

  torch::Tensor training_step(const levin::Batch& batch) override {
    auto [x, y] = batch.unpack<2>();  // x: (batch, 784) float32, y: (batch) int64
    auto loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    log("train_loss", loss, {.prog_bar = true});
    return loss;
  }

  void validation_step(const levin::Batch& batch) override { accuracy(batch, "val_acc"); }
  void test_step(const levin::Batch& batch) override { accuracy(batch, "test_acc"); }

  void accuracy(const levin::Batch& batch, const char* name) {
    auto [x, y] = batch.unpack<2>();
    log(name, (net->forward(x).argmax(1) == y).to(torch::kFloat).mean(), {.prog_bar = true});
  }

  levin::OptimizerConfig configure_optimizers() override { return levin::AdamW(parameters(), {.lr = 1e-3}); }
};

int main() {
  return levin::main_guard([] {
    levin::seed_everything(42);
    Classifier model;
    levin::FashionMnist data({.batch_size = 64, .flatten = true});
    levin::Trainer trainer(levin::TrainerOptions{
        .max_epochs = 3, .callbacks = {levin::EarlyStopping({.monitor = "val_acc", .mode = "max"})}});
    trainer.fit(model, data);
    const std::vector<levin::Metrics> results = trainer.test(model, data, "best");  // one map per loader
    for (const auto& [name, value] : results[0]) std::cout << name << " " << value << "\n";
  });
}
