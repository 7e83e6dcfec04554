// What both surrogate programs share: a simulation and the network that learns from it, as in TorchFort's example
// "simulation" (https://github.com/NVIDIA/TorchFort).
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <numbers>

constexpr int64_t kGrid = 16, kBatch = 16, kSteps = 400, kReportEvery = 100, kValidationSteps = 32;

/// Waves that a constant wind carries over a periodic square.
class Simulation {
 public:
  explicit Simulation(int64_t steps_done = 0) : steps_(steps_done) {}

  /// Advances by one time step, and writes the waves and the divergence of their flux, (kGrid, kGrid).
  void run_step(torch::Tensor waves, torch::Tensor divergence) {
    const double time = 0.01 * static_cast<double>(++steps_);
    const torch::Tensor at = torch::arange(kGrid) * (2 * std::numbers::pi / kGrid);
    const torch::Tensor x = at - 2 * std::numbers::pi * kWindX * time;
    const torch::Tensor y = (at - 2 * std::numbers::pi * kWindY * time).unsqueeze(1);
    waves.copy_(x.sin() * y.cos() + 0.5 * (2 * x + y).sin());
    const auto slope = [&](int64_t axis) { return (waves.roll(-1, axis) - waves.roll(1, axis)) * (kGrid / 2.0); };
    divergence.copy_(kWindX * slope(1) + kWindY * slope(0));
  }

 private:
  static constexpr double kWindX = 1, kWindY = 0.789;
  int64_t steps_;
};

struct Net : torch::nn::Module {
  torch::nn::Sequential layers =
      register_module("layers", torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(kGrid* kGrid, 128),
                                                      torch::nn::ReLU(), torch::nn::Linear(128, kGrid* kGrid)));
  torch::Tensor forward(const torch::Tensor& waves) { return layers->forward(waves).view({-1, kGrid, kGrid}); }
};
