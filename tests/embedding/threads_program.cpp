// Two Fabrics and a Trainer on three threads at once end with the weights that each has alone. Prints what differs.
//   threads_program FOLDER [ROUNDS]
#include <array>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <thread>

#include "embedding/small_training.h"
#include "levin/loggers/csv_logger.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin::test {
namespace {

CSVLogger csv(const std::string& folder) {
  return CSVLogger({.save_dir = folder, .name = "", .version = "run"});
}

std::string by_recorded_steps(const std::string& folder) {
  SmallNet net;
  train_small(net,
              {.loggers = csv(folder), .accumulate_grad_batches = 2, .gradient_clip_val = 0.1, .record_steps = true},
              folder);
  return net.text();
}

std::string by_hand(const std::string& folder) {
  SmallNet net;
  Fabric fabric({.precision = "bf16-mixed", .loggers = csv(folder), .num_threads = 1});
  FabricOptimizer optimizer = fabric.setup(net, net.optimizers());
  FabricLoader loader = fabric.setup_dataloaders(small_loader());
  for (int64_t epoch = 0; epoch < kSmallEpochs; ++epoch) {
    for (const Batch& batch : loader.epoch(epoch)) {
      optimizer.zero_grad();
      at::Tensor loss;
      {
        const auto autocast = fabric.autocast();
        loss = net.loss(batch);
      }
      fabric.backward(loss);
      fabric.clip_gradients(net, {.max_norm = 0.1});
      optimizer.step();
      fabric.log("loss", loss);
    }
  }
  return net.text();
}

struct SmallModule : LightningModule {
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor loss = net->loss(batch);
    log("loss", loss);
    return loss;
  }
  OptimizerConfig configure_optimizers() override { return net->optimizers(); }
  std::shared_ptr<SmallNet> net = register_module("net", std::make_shared<SmallNet>());
};

std::string by_trainer(const std::string& folder) {
  SmallModule module;
  TrainerOptions options;
  options.max_epochs = kSmallEpochs;
  options.log_every_n_steps = 1;
  options.num_threads = 1;
  options.enable_progress_bar = options.enable_model_summary = false;
  options.logger = csv(folder);
  options.default_root_dir = folder;
  Trainer(options).fit(module, small_loader());
  return module.net->text();
}

constexpr std::array kKinds{std::pair{"steps", &by_recorded_steps}, std::pair{"hand", &by_hand},
                            std::pair{"trainer", &by_trainer}};

// The weights of each kind, or the error; `together`: on threads at once.
std::array<std::string, kKinds.size()> weights(const std::string& folder, bool together) {
  std::array<std::string, kKinds.size()> all;
  std::vector<std::thread> threads;
  for (size_t k = 0; k < kKinds.size(); ++k) {
    threads.emplace_back([&, k] {
      try {
        all[k] = kKinds[k].second(folder + "/" + kKinds[k].first);
      } catch (const std::exception& error) {
        all[k] = error.what();
      }
    });
    if (!together) threads.back().join();
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
  return all;
}

}  // namespace
}  // namespace levin::test

int main(int argc, char** argv) {
  using levin::test::kKinds;
  const std::string folder = argv[1];
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  const auto alone = levin::test::weights(folder + "/alone", false);
  int different = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto together = levin::test::weights(folder + "/together" + std::to_string(round), true);
    for (size_t k = 0; k < kKinds.size(); ++k) {
      if (together[k] == alone[k]) continue;
      ++different;
      std::cout << kKinds[k].first << " in round " << round << ":\n" << together[k] << "\n" << alone[k] << "\n";
    }
  }
  std::cout << alone[0] << "\n";
  return different == 0 ? 0 : 1;
}
