// A program that links only levin::core. parts_test.py runs it with the other parts in the same folder, and without
// them.
#include <ATen/Functions.h>
#include <torch/nn/modules/linear.h>

#include <iostream>
#include <string>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/data/data_module.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/dataset.h"
#include "levin/loggers/image.h"
#include "levin/loggers/logger.h"
#include "levin/optim/sgd.h"
#include "levin/strategies/process/ddp.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/load_from_checkpoint.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/trainer.h"

namespace {

struct Line : levin::LightningModule {
  torch::nn::Linear layer{1, 1};

  Line() { register_module("layer", layer); }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    auto [x, y] = batch.unpack<2>();  // both (batch, 1) float32
    const at::Tensor loss = at::mse_loss(layer->forward(x), y);
    log("train_loss", loss, {.on_step = false, .on_epoch = true});
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 0.5}); }
};

// With a checkpoint, the CSV logger and the default callbacks. `backend`: of two ranks, or "" for one.
void train(const std::string& folder, const std::string& backend) {
  levin::seed_everything(1);
  const at::Tensor x = at::rand({64, 1});
  Line model;
  levin::TrainerOptions options{.max_epochs = 2, .enable_progress_bar = false, .default_root_dir = folder};
  if (!backend.empty()) {
    options.accelerator = "cpu";
    options.devices = 2;
    options.oversubscribe = true;
    options.strategy = levin::DDP({.process_group_backend = backend});
  }
  levin::Trainer trainer(options);
  trainer.fit(model, std::make_shared<levin::DataLoader>(
                         std::make_shared<levin::TensorDataset>(std::vector<at::Tensor>{x, 3 * x + 1}),
                         levin::DataLoaderOptions{.batch_size = 16}));
  std::cout << trainer.global_step() << " steps\n";
}

// The weights in a checkpoint, bit by bit: the same text from each LibTorch.
void print_weights(const std::string& checkpoint) {
  const auto model = levin::load_from_checkpoint<Line>(checkpoint);
  for (const auto& parameter : model->named_parameters()) {
    std::cout << parameter.key() << " " << std::hexfloat << parameter.value().item<float>() << "\n";
  }
}

// What a run file with this class gets: its options, or the error.
template <class Interface>
void resolve(const std::string& name) {
  levin::add_builtins();
  levin::Problems problems;
  const auto spec = levin::Registry<Interface>::instance().resolve({name, {}, {"run.yaml", 3, 5}}, "here", problems);
  std::cout << (problems.empty() ? "found " + spec.class_path : problems.lines()[0]) << "\n";
}

template <class Interface>
void list() {
  levin::add_builtins();
  for (const auto& name : levin::Registry<Interface>::instance().names()) std::cout << name << "\n";
}

int run(const std::string& what, const std::string& argument) {
  if (what == "train")
    train(argument, "");
  else if (what.starts_with("ranks-"))
    train(argument, what.substr(6));
  else if (what == "weights")
    print_weights(argument);
  else if (what == "callback")
    resolve<levin::Callback>(argument);
  else if (what == "data")
    resolve<levin::DataModule>(argument);
  else if (what == "model")
    resolve<levin::LightningModule>(argument);
  else if (what == "logger")
    resolve<levin::Logger>(argument);
  else if (what == "list")
    list<levin::DataModule>();
  else if (what == "image")
    std::cout << levin::png_of(levin::image_of(at::zeros({4, 4}))).substr(1, 3) << "\n";
  else
    return 2;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::cout << error.what() << "\n";
    return 1;
  }
}
