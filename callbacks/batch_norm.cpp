#include "levin/callbacks/batch_norm.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include "levin/strategies/rank_collectives.h"

namespace levin::detail {

namespace {

// `action(layer)` with the layer's own class if it is a BatchNorm.
template <class Module, class Action>
bool with_batch_norm(Module& module, Action action) {
  const auto as = [&](auto* layer) {
    if (layer != nullptr) action(*layer);
    return layer != nullptr;
  };
  return as(dynamic_cast<torch::nn::BatchNorm1dImpl*>(&module)) ||
         as(dynamic_cast<torch::nn::BatchNorm2dImpl*>(&module)) ||
         as(dynamic_cast<torch::nn::BatchNorm3dImpl*>(&module));
}

}  // namespace

bool is_batch_norm(const torch::nn::Module& module) {
  if (with_batch_norm(const_cast<torch::nn::Module&>(module), [](auto&) {})) return true;
  if (dynamic_cast<const torch::nn::InstanceNorm1dImpl*>(&module) != nullptr ||
      dynamic_cast<const torch::nn::InstanceNorm2dImpl*>(&module) != nullptr ||
      dynamic_cast<const torch::nn::InstanceNorm3dImpl*>(&module) != nullptr) {
    return false;
  }
  const auto buffers = module.named_buffers(/*recurse=*/false);
  return buffers.contains("running_mean") && buffers.contains("running_var");
}

BatchNormRecount::BatchNormRecount(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (const auto& child : module.modules(/*include_self=*/false)) {
    with_batch_norm(*child, [&](auto& layer) {
      if (!layer.is_training() || !layer.options.track_running_stats()) return;
      const auto momentum = layer.options.momentum();
      layer.options.momentum(std::nullopt);  // the mean over all batches
      layer.reset_running_stats();
      statistics_.push_back(layer.running_mean);
      statistics_.push_back(layer.running_var);
      restore_.push_back([child, &layer, momentum] { layer.options.momentum(momentum); });
    });
  }
}

// Each rank's statistics are a mean over its batches, and all ranks have the same number of batches.
void BatchNormRecount::average(RankCollectives& ranks) const {
  if (ranks.world_size() == 1) return;
  const torch::NoGradGuard no_grad;
  for (at::Tensor statistic : statistics_) statistic.copy_(ranks.reduce(statistic, ReduceOp::mean));
}

BatchNormRecount::~BatchNormRecount() {
  for (const auto& restore : restore_) restore();
}

}  // namespace levin::detail
