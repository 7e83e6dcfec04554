#include "levin/callbacks/gradient_centralization.h"

#include <c10/core/GradMode.h>

#include <numeric>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/optim/optimizer.h"
#include "levin/trainer/trainer.h"

namespace levin {

GradientCentralization::GradientCentralization(GradientCentralizationOptions options)
    : options_(checked(options, "GradientCentralizationOptions")) {}

void GradientCentralization::on_fit_start(Trainer& trainer, LightningModule&) {
  if (!trainer.strategy().sharding().has_sharded_gradients()) return;
  throw ConfigError("GradientCentralization: " + trainer.strategy().name() +
                    " gives each rank a part of the gradients, and the mean is over all of a row. Use ddp, or drop the "
                    "callback.");
}

void GradientCentralization::on_before_optimizer_step(Trainer&, LightningModule&, Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& param : optimizer.parameters()) {
    const at::Tensor& gradient = param.grad();
    if (!gradient.defined() || gradient.dim() < (options_.only_convolutions ? 3 : 2)) continue;
    std::vector<int64_t> inputs(static_cast<size_t>(gradient.dim() - 1));  // all dimensions except the outputs'
    std::iota(inputs.begin(), inputs.end(), 1);
    gradient.sub_(gradient.mean(inputs, /*keepdim=*/true));
  }
}

}  // namespace levin
