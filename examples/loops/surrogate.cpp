// The loop of surrogate_before.cpp over levin::Fabric.
//
//   surrogate
#include "surrogate.h"

#include <levin/levin.h>

#include <filesystem>
#include <iostream>

#include "checksum.h"

int main() {
  return levin::main_guard([] {
    torch::manual_seed(1);
    Net net;
    levin::Fabric fabric({.loggers = levin::CSVLogger()});
    auto optimizer = fabric.setup(net, {torch::optim::Adam(net.parameters(), 1e-3),
                                        levin::CosineAnnealingLR({.T_max = kSteps + 1}),
                                        {.interval = "step"}});
    if (std::filesystem::exists("last.ckpt")) fabric.load("last.ckpt");
    Simulation simulation(fabric.global_step() * kBatch);
    torch::Tensor input = torch::empty({kBatch, kGrid, kGrid}), label = torch::empty_like(input);

    while (fabric.global_step() < kSteps) {
      for (int64_t k = 0; k < kBatch; ++k) simulation.run_step(input[k], label[k]);
      net.train();
      const torch::Tensor loss = fabric.step(
          {input, label}, [&](const levin::Batch& batch) { return torch::mse_loss(net.forward(batch[0]), batch[1]); });
      if (fabric.global_step() % kReportEvery != 0) continue;
      fabric.log_dict({{"loss", loss.item<double>()}, {"lr", optimizer.optimizer().param_groups()[0].lr}});
      fabric.save("last.ckpt");
      std::cout << "step " << fabric.global_step() << ": loss " << loss.item<double>() << std::endl;
    }

    const torch::NoGradGuard no_grad;
    net.eval();
    double error = 0;
    for (int64_t k = 0; k < kValidationSteps; ++k) {
      simulation.run_step(input[0], label[0]);
      error += torch::mse_loss(net.forward(input.narrow(0, 0, 1)), label.narrow(0, 0, 1)).item<double>();
    }
    fabric.log("val_loss", error / kValidationSteps);
    std::cout << "validation: " << error / kValidationSteps << "\nweights " << checksum(net.parameters()) << std::endl;
  });
}
