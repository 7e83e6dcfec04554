// Learns tic-tac-toe by playing against itself with LibTorch alone, as the learner of OpenSpiel's AlphaZero
// (https://github.com/google-deepmind/open_spiel) does. Its checkpoint has the network and the optimizer: a program
// that is started again fills its buffer anew.
//
//   self_play_before
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "checksum.h"
#include "self_play.h"

namespace {

class CircularBuffer {
 public:
  void add(const Example& example) {
    if (examples_.size() < kCapacity) {
      examples_.push_back(example);
    } else {
      examples_[added_ % kCapacity] = example;
    }
    ++added_;
  }
  Example sample(std::mt19937& generator) const {
    std::vector<torch::Tensor> observations, visits, outcomes;
    for (int64_t k = 0; k < kBatch; ++k) {
      const Example& example = examples_[generator() % examples_.size()];
      observations.push_back(example.observation);
      visits.push_back(example.visits);
      outcomes.push_back(example.outcome);
    }
    return {torch::stack(observations), torch::stack(visits), torch::stack(outcomes)};
  }

 private:
  std::vector<Example> examples_;
  size_t added_ = 0;
};

double learn(Net& net, torch::optim::Adam& optimizer, const Example& batch) {
  net.train();
  optimizer.zero_grad();
  const torch::Tensor loss = net.loss(batch.observation, batch.visits, batch.outcome);
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

void save_checkpoint(const Net& net, const torch::optim::Adam& optimizer, int64_t iteration) {
  torch::serialize::OutputArchive net_archive, optimizer_archive, archive;
  net.save(net_archive);
  optimizer.save(optimizer_archive);
  archive.write("net", net_archive);
  archive.write("optimizer", optimizer_archive);
  archive.write("iteration", torch::tensor(iteration));
  archive.save_to("checkpoint.pt");
}

int64_t load_checkpoint(Net& net, torch::optim::Adam& optimizer) {
  torch::serialize::InputArchive net_archive, optimizer_archive, archive;
  archive.load_from("checkpoint.pt");
  archive.read("net", net_archive);
  archive.read("optimizer", optimizer_archive);
  net.load(net_archive);
  optimizer.load(optimizer_archive);
  torch::Tensor iteration;
  archive.read("iteration", iteration);
  return iteration.item<int64_t>();
}

}  // namespace

int main() {
  torch::manual_seed(1);
  Net net;
  torch::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(3e-3).weight_decay(1e-4));
  CircularBuffer buffer;
  std::mt19937 generator(1);
  const bool resumes = std::filesystem::exists("checkpoint.pt");
  int64_t iteration = resumes ? load_checkpoint(net, optimizer) : 0;
  std::ofstream report("learner.csv", resumes ? std::ios::app : std::ios::trunc);
  if (!resumes) report << "iteration,loss\n";

  for (; iteration < kIterations; ++iteration) {
    for (int64_t game = 0; game < kGames; ++game) {
      for (const Example& example : play_game(net, generator)) buffer.add(example);
    }
    double loss = 0;
    for (int64_t k = 0; k < kUpdates; ++k) loss += learn(net, optimizer, buffer.sample(generator)) / kUpdates;
    report << iteration << ',' << loss << std::endl;
    save_checkpoint(net, optimizer, iteration + 1);
    std::cout << "iteration " << iteration << ": loss " << loss << std::endl;
  }
  std::cout << "games not lost to a random player: " << score_against_random(net) << "\nweights "
            << checksum(net.parameters()) << std::endl;
}
