// What a user's own project does with Levin: includes it, links it, trains with it.
#include <levin/levin.h>

#include <iostream>

struct Line : levin::LightningModule {
  torch::nn::Linear layer{1, 1};

  Line() { register_module("layer", layer); }
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    auto [x, y] = batch.unpack<2>();  // both (batch, 1) float32
    auto loss = torch::mse_loss(layer->forward(x), y);
    log("train_loss", loss, {.on_step = false, .on_epoch = true});
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 0.5}); }
};

int main() {
  levin::seed_everything(1);
  auto x = torch::rand({64, 1});
  auto data = std::make_shared<levin::TensorDataset>(std::vector<torch::Tensor>{x, 3 * x + 1});
  Line model;
  levin::Trainer trainer(levin::TrainerOptions{.max_epochs = 50,
                                               .logger = false,
                                               .enable_checkpointing = false,
                                               .enable_progress_bar = false,
                                               .enable_model_summary = false});
  trainer.fit(model, std::make_shared<levin::DataLoader>(data, levin::DataLoaderOptions{.batch_size = 16}));
  const double loss = trainer.callback_metrics().at("train_loss");
  std::cout << "consumer: " << trainer.global_step() << " steps, loss " << (loss < 0.01 ? "is" : "is not")
            << " low: " << loss << "\n";
  return 0;
}
