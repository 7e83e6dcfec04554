// A custom callback: stops when the training loss is low enough, and counts its checks across restarts.
//
//   02_custom_callback fit --config run.yaml      # or as `levin` with one additional class: see main
#include <levin/cli/run_cli.h>
#include <levin/levin.h>

struct StopAtLossOptions {
  double below = 0.1;

  static auto fields() {
    return levin::fields(
        levin::field("below", &StopAtLossOptions::below, "stop when train_loss is below this").above(0.0));
  }
};

class StopAtLoss : public levin::Callback {
 public:
  using Options = StopAtLossOptions;
  explicit StopAtLoss(StopAtLossOptions options = {}) : options_(levin::checked(options, "StopAtLossOptions")) {}

  void on_train_epoch_end(levin::Trainer& trainer, levin::LightningModule&) override {
    ++looked_;
    const auto metrics = trainer.callback_metrics();
    const auto loss = metrics.find("train_loss");
    if (loss == metrics.end()) throw levin::Error("StopAtLoss: train_loss was never logged. Log it in training_step.");
    if (loss->second < options_.below) trainer.request_stop("train_loss is " + std::to_string(loss->second));
  }

  [[nodiscard]] std::string state_key() const override { return "StopAtLoss"; }
  [[nodiscard]] levin::State state_dict() const override {
    levin::State state;
    state.set("looked", looked_);
    return state;
  }
  void load_state_dict(const levin::State& state) override { looked_ = state.get<int64_t>("looked"); }

 private:
  StopAtLossOptions options_;
  int64_t looked_ = 0;
};
LEVIN_REGISTER_CALLBACK(StopAtLoss, "stops when the training loss is low enough");

class Line : public levin::LightningModule {
 public:
  torch::Tensor training_step(const levin::Batch& batch) override {
    auto [x, y] = batch.unpack<2>();
    auto loss = torch::mse_loss(layer_->forward(x), y);
    log("train_loss", loss, {.on_step = false, .on_epoch = true});
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 0.1}); }

 private:
  torch::nn::Linear layer_ = register_module("layer", torch::nn::Linear(1, 1));
};
LEVIN_REGISTER_MODEL(Line, "y = a x + b");

int main(int argc, char** argv) {
  if (argc > 1) return levin::run_cli(argc, argv);
  return levin::main_guard([] {
    levin::seed_everything(1);
    auto x = torch::rand({256, 1});
    const levin::TensorDataset data{x, 3 * x + 1};
    Line model;
    levin::Trainer trainer(levin::TrainerOptions{.max_epochs = 100, .callbacks = {StopAtLoss({.below = 1e-3})}});
    trainer.fit(model, levin::DataLoader(data, {.batch_size = 32, .shuffle = true}));
    std::cout << "stopped after " << trainer.current_epoch() << " epochs: " << trainer.stop_reason() << "\n";
  });
}
