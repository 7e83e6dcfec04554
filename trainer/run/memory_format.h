// Implements TrainerOptions::channels_last: images and the weights of convolutions with their channels last in memory.
#pragma once

#include "levin/data/batch.h"

namespace levin {

class LightningModule;

/// Changes the layout of four-dimensional parameters and buffers; they stay the same tensors. Weights of convolutions
/// are recognized by their four dimensions, as in torch.nn.Module.to(memory_format).
void use_channels_last(LightningModule& module);

/// Changes the layout of the batch's tensors (N, C, H, W).
void use_channels_last(Batch& batch);

}  // namespace levin
