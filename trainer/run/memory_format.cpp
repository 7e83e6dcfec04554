#include "levin/trainer/run/memory_format.h"

#include <ATen/core/grad_mode.h>

#include "levin/data/batch_rows.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

void use_channels_last(LightningModule& module) {
  const at::NoGradGuard no_grad;
  auto lay_out = [](at::Tensor tensor) {
    if (tensor.dim() == 4) tensor.set_data(tensor.contiguous(at::MemoryFormat::ChannelsLast));
  };
  for (const auto& parameter : module.parameters()) lay_out(parameter);
  for (const auto& buffer : module.buffers()) lay_out(buffer);
}

void use_channels_last(Batch& batch) {
  const auto lay_out = [](at::Tensor& tensor) {
    if (tensor.dim() == 4) tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
  };
  for (at::Tensor& tensor : batch.tensors) lay_out(tensor);
  visit_values(batch, lay_out);
}

}  // namespace levin
