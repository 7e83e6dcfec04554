// Trains a network while a simulation runs, with LibTorch alone, as TorchFort does inside: a train step, a schedule of
// the learning rate, reports, and a checkpoint that a simulation can continue from.
//
//   surrogate_before
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "checksum.h"
#include "surrogate.h"

namespace {

class CosineAnnealing : public torch::optim::LRScheduler {
 public:
  CosineAnnealing(torch::optim::Optimizer& optimizer, double period) : LRScheduler(optimizer), period_(period) {}
  void continue_at(int64_t step) { step_count_ = static_cast<unsigned>(step); }

 private:
  std::vector<double> get_lrs() override {
    const double step = step_count_ + 1.0;
    const auto height = [&](double at) { return 1 + std::cos(std::numbers::pi * at / period_); };
    std::vector<double> rates = get_current_lrs();
    for (double& rate : rates) rate *= height(step) / height(step - 1);
    return rates;
  }

  double period_;
};

struct TrainingState {
  Net net;
  torch::optim::Adam optimizer{net.parameters(), 1e-3};
  CosineAnnealing scheduler{optimizer, kSteps + 1};
  int64_t step = 0;
};

void save_checkpoint(TrainingState& state) {
  torch::serialize::OutputArchive net, optimizer, archive;
  state.net.save(net);
  state.optimizer.save(optimizer);
  archive.write("net", net);
  archive.write("optimizer", optimizer);
  archive.write("step", torch::tensor(state.step));
  archive.save_to("checkpoint.tmp");
  std::filesystem::rename("checkpoint.tmp", "checkpoint.pt");
}

void load_checkpoint(TrainingState& state) {
  torch::serialize::InputArchive net, optimizer, archive;
  archive.load_from("checkpoint.pt");
  archive.read("net", net);
  archive.read("optimizer", optimizer);
  state.net.load(net);
  state.optimizer.load(optimizer);
  torch::Tensor step;
  archive.read("step", step);
  state.step = step.item<int64_t>();
  state.scheduler.continue_at(state.step);
}

double train(TrainingState& state, const torch::Tensor& input, const torch::Tensor& label) {
  state.net.train();
  const torch::Tensor loss = torch::mse_loss(state.net.forward(input), label);
  const double value = loss.item<double>();
  state.optimizer.zero_grad();
  loss.backward();
  state.optimizer.step();
  state.scheduler.step();
  ++state.step;
  return value;
}

}  // namespace

int main() {
  torch::manual_seed(1);
  TrainingState state;
  std::ofstream report;
  if (std::filesystem::exists("checkpoint.pt")) {
    load_checkpoint(state);
    report.open("report.csv", std::ios::app);
  } else {
    report.open("report.csv");
    report << "step,loss,lr\n";
  }
  Simulation simulation(state.step * kBatch);
  torch::Tensor input = torch::empty({kBatch, kGrid, kGrid}), label = torch::empty_like(input);

  while (state.step < kSteps) {
    for (int64_t k = 0; k < kBatch; ++k) simulation.run_step(input[k], label[k]);
    const double loss = train(state, input, label);
    if (state.step % kReportEvery != 0) continue;
    const double rate = state.optimizer.param_groups()[0].options().get_lr();
    report << state.step << ',' << loss << ',' << rate << std::endl;
    save_checkpoint(state);
    std::cout << "step " << state.step << ": loss " << loss << std::endl;
  }

  const torch::NoGradGuard no_grad;
  state.net.eval();
  double error = 0;
  for (int64_t k = 0; k < kValidationSteps; ++k) {
    simulation.run_step(input[0], label[0]);
    error += torch::mse_loss(state.net.forward(input.narrow(0, 0, 1)), label.narrow(0, 0, 1)).item<double>();
  }
  std::cout << "validation: " << error / kValidationSteps << "\nweights " << checksum(state.net.parameters())
            << std::endl;
}
