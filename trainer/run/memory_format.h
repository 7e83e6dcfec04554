// TrainerOptions::channels_last: images and the weights of convolutions with their channels last in memory.
#pragma once

#include "levin/data/batch.h"

namespace levin {

class LightningModule;

/// Lays out parameters and buffers of four dimensions anew; they stay the same tensors. Weights of convolutions are
/// told from others by their four dimensions, as torch.nn.Module.to(memory_format) does.
void use_channels_last(LightningModule& module);

/// The batch's tensors (N, C, H, W).
void use_channels_last(Batch& batch);

}  // namespace levin
