// The loop of self_play_before.cpp over levin::Fabric. Its checkpoint has the buffer and both generators too.
//
//   self_play
#include "self_play.h"

#include <levin/levin.h>

#include <filesystem>
#include <iostream>

#include "checksum.h"

int main() {
  return levin::main_guard([] {
    torch::manual_seed(1);
    Net net;
    auto buffer = std::make_shared<levin::ReplayBuffer>(levin::ReplayBufferOptions{.capacity = kCapacity, .seed = 1});
    std::mt19937 generator(1);

    levin::Fabric fabric({.loggers = levin::CSVLogger()});
    fabric.setup(net, torch::optim::Adam(net.parameters(), torch::optim::AdamOptions(3e-3).weight_decay(1e-4)));
    auto loader =
        fabric.setup_dataloaders(levin::ReplayLoader(buffer, {.batch_size = kBatch, .batches_per_epoch = kUpdates}));
    if (std::filesystem::exists("last.ckpt")) {
      generator = fabric.load("last.ckpt").get<std::mt19937>("generator");
    }

    for (int64_t iteration = fabric.current_epoch(); iteration < kIterations; ++iteration) {
      for (int64_t game = 0; game < kGames; ++game) {
        for (const Example& example : play_game(net, generator)) {
          buffer->add({{"observation", example.observation}, {"visits", example.visits}, {"outcome", example.outcome}});
        }
      }
      double loss = 0;
      for (const levin::Batch& batch : loader.epoch(iteration)) {
        loss += fabric
                    .step(batch,
                          [&](const levin::Batch& each) {
                            return net.loss(each["observation"], each["visits"], each["outcome"]);
                          })
                    .item<double>() /
                kUpdates;
      }
      fabric.log("loss", loss);
      levin::State user;
      user.set("generator", generator);
      fabric.save("last.ckpt", user);
      std::cout << "iteration " << iteration << ": loss " << loss << std::endl;
    }
    std::cout << "games not lost to a random player: " << score_against_random(net) << "\nweights "
              << checksum(net.parameters()) << std::endl;
  });
}
