// A training that ends with the same weights, bitwise, wherever it runs: it draws no random numbers of the process.
#pragma once

#include <ATen/ops/linspace.h>
#include <ATen/ops/mse_loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/dataset.h"
#include "levin/optim/adam.h"
#include "levin/trainer/fabric.h"

namespace levin::test {

inline constexpr int64_t kSmallEpochs = 2;

class SmallNet : public torch::nn::Module {
 public:
  SmallNet() {
    const at::NoGradGuard no_grad;
    for (at::Tensor parameter : parameters()) {
      parameter.copy_(at::linspace(-0.3, 0.4, parameter.numel()).view_as(parameter));
    }
  }
  at::Tensor loss(const Batch& batch) { return at::mse_loss(layers->forward(batch[0]), batch[1]); }
  [[nodiscard]] OptimizerConfig optimizers() { return AdamW(parameters(), {.lr = 0.01}); }

  /// The weights as hexadecimal numbers.
  [[nodiscard]] std::string text() const {
    std::ostringstream text;
    text << std::hexfloat;
    for (const at::Tensor& parameter : parameters()) {
      const at::Tensor flat = parameter.detach().flatten();
      for (int64_t k = 0; k < flat.numel(); ++k) text << flat[k].item<float>() << ' ';
    }
    return text.str();
  }

  torch::nn::Sequential layers = register_module(
      "layers", torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1)));
};

/// One batch of four samples.
inline Batch small_batch() {
  return {at::linspace(-1, 1, 16).view({4, 4}), at::linspace(0, 1, 4).view({4, 1})};
}

/// Ten batches, shuffled by a seed of its own.
inline DataLoader small_loader() {
  const at::Tensor x = at::linspace(-1, 1, 160).view({40, 4});
  return DataLoader(std::make_shared<TensorDataset>(std::vector<at::Tensor>{x, x.sum(1, true)}),
                    {.batch_size = 4, .shuffle = true, .seed = 3});
}

/// Trains `net` by Fabric::step, logs every loss, and saves a checkpoint in `folder` after each epoch.
inline void train_small(SmallNet& net, FabricOptions options, const std::string& folder) {
  options.num_threads = 1;
  Fabric fabric(options);
  fabric.launch();
  (void)fabric.setup(net, net.optimizers());
  FabricLoader loader = fabric.setup_dataloaders(small_loader());
  for (int64_t epoch = fabric.current_epoch(); epoch < kSmallEpochs; ++epoch) {
    for (const Batch& batch : loader.epoch(epoch)) {
      fabric.log("loss", fabric.step(batch, [&](const Batch& each) { return net.loss(each); }));
    }
    fabric.save(folder + "/last.ckpt");
  }
}

}  // namespace levin::test
