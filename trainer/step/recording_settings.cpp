#include "levin/trainer/step/recording_settings.h"

#include "levin/optim/batched_optimizer.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

namespace {

void add_numbers(const Optimizer& optimizer, std::vector<double>& to) {
  const auto* batched = dynamic_cast<const BatchedOptimizer*>(&optimizer);
  const bool records_rates = batched != nullptr && batched->records_learning_rates();
  for (const auto& group : optimizer.param_groups()) {
    to.insert(to.end(), {group.momentum, group.weight_decay});
    if (records_rates) to.push_back(group.lr);
  }
}

}  // namespace

SettingsReader::SettingsReader(const LightningModule& module, const std::vector<at::Tensor>& trained)
    : module_(module), tensors_(tensors_of_step(module, trained)) {
  for (const auto& layer : module.modules(/*include_self=*/false)) modules_.push_back(layer.get());
}

RecordingSettings SettingsReader::read(const Optimizer* optimizer, int64_t window_size) const {
  RecordingSettings now{.window_size = window_size};
  if (optimizer != nullptr) {
    now.optimizer_version = optimizer->version();
    add_numbers(*optimizer, now.numbers);
  }
  now.tensors.reserve(tensors_.size());
  for (const auto& tensor : tensors_) {
    const bool has_memory = tensor.defined() && tensor.has_storage();
    now.tensors.push_back(has_memory ? tensor.storage().data() : nullptr);
    now.flags.push_back(tensor.defined() && tensor.requires_grad());
    if (!has_memory) continue;
    now.layouts.push_back(tensor.storage_offset());
    now.layouts.insert(now.layouts.end(), tensor.sizes().begin(), tensor.sizes().end());
    now.layouts.insert(now.layouts.end(), tensor.strides().begin(), tensor.strides().end());
  }
  now.flags.push_back(module_.is_training());
  for (const auto* layer : modules_) now.flags.push_back(layer->is_training());
  return now;
}

}  // namespace levin
