// A user's shared library: one model, for run files that open it with `plugins`.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include "levin/core/options/registry.h"
#include "levin/optim/sgd.h"
#include "levin/trainer/lightning_module.h"

namespace {

struct PluginModelOptions {
  double lr = 0.1;
  static auto fields() { return levin::fields(levin::field("lr", &PluginModelOptions::lr, "step size").above(0.0)); }
};

// Fits y = 2 x to any input.
class PluginModel : public levin::LightningModule {
 public:
  using Options = PluginModelOptions;
  explicit PluginModel(PluginModelOptions options = {}) : options_(levin::checked(options, "PluginModelOptions")) {
    save_hyperparameters(options_);
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    const at::Tensor x = batch[0].flatten().unsqueeze(1).to(at::kFloat);
    const at::Tensor loss = torch::nn::functional::mse_loss(layer->forward(x), 2 * x);
    log("plugin_loss", loss);
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = options_.lr}); }

 private:
  PluginModelOptions options_;
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(1, 1))};
};

#ifdef LEVIN_TEST_TORCH_VERSION  // as if it was compiled with another LibTorch
#undef TORCH_VERSION
#define TORCH_VERSION LEVIN_TEST_TORCH_VERSION
#endif

LEVIN_REGISTER_MODEL(PluginModel, "one weight");

}  // namespace
