// Gradient accumulation: eight batches of 32 images and one update give the weights of a batch of 256, with the
// Trainer and with a hand-written loop.
#include <levin/levin.h>

constexpr int64_t kBatch = 256, kParts = 8, kUpdates = 20;

struct Classifier : levin::LightningModule {
  torch::nn::Sequential net = register_module(
      "net", torch::nn::Sequential(torch::nn::Linear(784, 64), torch::nn::ReLU(), torch::nn::Linear(64, 10)));

  torch::Tensor training_step(const levin::Batch& batch) override {
    auto [x, y] = batch.unpack<2>();
    return torch::nn::functional::cross_entropy(net->forward(x), y);  // a mean over the batch
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 0.1}); }
  torch::Tensor weights() { return torch::nn::utils::parameters_to_vector(parameters()).detach(); }
};

std::shared_ptr<levin::Loader> images(int64_t batch_size) {
  levin::FashionMnist data({.batch_size = batch_size, .flatten = true});
  data.prepare_data();
  data.setup(levin::Stage::fit);
  return data.train_dataloader();  // its order is a function of seed and epoch, not of the batch size
}

torch::Tensor by_trainer(int64_t batch_size, int64_t accumulated) {
  levin::seed_everything(1);
  Classifier model;
  levin::Trainer trainer(
      levin::TrainerOptions{.max_steps = kUpdates, .accumulate_grad_batches = accumulated, .barebones = true});
  trainer.fit(model, images(batch_size));
  return model.weights();
}

torch::Tensor by_hand() {
  levin::seed_everything(1);
  Classifier model;
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  auto loader = images(kBatch / kParts);
  loader->start(/*epoch=*/0);
  levin::Batch batch;
  for (int64_t k = 1; k <= kUpdates * kParts && loader->next(batch); ++k) {
    (model.training_step(batch) / kParts).backward();  // gradients are sums: the mean of a mean needs the division
    if (k % kParts != 0) continue;
    optimizer.step();
    optimizer.zero_grad();
  }
  return model.weights();
}

int main() {
  return levin::main_guard([] {
    const torch::Tensor whole = by_trainer(kBatch, 1);
    const auto say = [&](const std::string& what, const torch::Tensor& weights) {
      std::cout << what << ": " << (weights - whole).abs().max().item<double>() << "\n";
    };
    std::cout << "largest difference of a weight after " << kUpdates << " updates, to batches of " << kBatch << "\n";
    say("accumulated by the Trainer", by_trainer(kBatch / kParts, kParts));
    say("accumulated by hand", by_hand());
    say("batches of " + std::to_string(kBatch / kParts) + " alone", by_trainer(kBatch / kParts, 1));
  });
}
