// What LoRA sees in a module: a layer that it can adapt, or why not. See Note [Which layers can be adapted] in
// lora_targets.h. Internal.
#pragma once

#include <string>
#include <variant>

#include "levin/adapters/target_layer.h"

namespace levin {

/// Whether a module is torch::nn::Linear or derives from it, or is called Conv1D, and has its weight.
[[nodiscard]] bool is_linear_layer(const torch::nn::Module& module);
/// Whether a module is of a class that LoRA knows: a linear layer, an embedding or a convolution.
[[nodiscard]] bool is_known_layer(const torch::nn::Module& module);

/// The layer called `name`, or what it is instead, as the end of a sentence: "norm, a LayerNorm, and …."
[[nodiscard]] std::variant<TargetLayer, std::string> layer_kind(const std::string& name, torch::nn::Module& module);

}  // namespace levin
