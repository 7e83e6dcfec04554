// LoRA on the layers of any module, found by name (docs/lora.md): linear ones, embeddings and convolutions. In a run
// the callback LoRA does this; in a hand-written loop:
//
//   levin::apply_lora(*model, {.target_modules = {"query", "value"}, .r = 16, .lora_alpha = 32});
//   …                                    // train the parameters that require gradients
//   levin::save_lora(*model, "adapter");  // a folder that PEFT reads, too
//   levin::merge_lora(*model);            // or: the model without adapters, which are added to its weights
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/adapters/lora_options.h"

namespace torch::nn {
class Module;
}

namespace levin {

class LoRALayer;

/// Adds lora_A.weight (r, in) and lora_B.weight (out, r) to every layer that target_modules names, and freezes all
/// parameters but those, modules_to_save and the biases of `bias`. Embeddings get lora_embedding_A.weight (r, rows) and
/// lora_embedding_B.weight (width, r), convolutions lora_A.weight (r, in, size …) and lora_B.weight (out, r / groups,
/// 1 …). From then on the layer's product, however it is computed, has the weight weight + scaling * B A. With `path`
/// the adapter's folder determines the layers, r and lora_alpha. A module that is adapted with the same options already
/// stays unchanged. `outer`: a prefix that names of layers in the options may have ("model."). Draws A from the default
/// generator. Throws ConfigError for options that name nothing or contradict the folder or what the module is adapted
/// with, CheckpointError for a folder that does not fit the module.
void apply_lora(torch::nn::Module& module, const LoRAOptions& options, const std::string& outer = "");

/// Adds scaling * B A to the weights and removes the adapters; parameters stay frozen, quantized weights are of their
/// first type again. Does nothing to a module without adapters. Throws what check_merge throws, and changes nothing
/// then.
void merge_lora(torch::nn::Module& module);

/// Throws Error if the adapters cannot be merged: one of a convolution in several groups, or of a weight that the model
/// uses at a second place, which would change too (tied embeddings).
void check_merge(const torch::nn::Module& module);

/// The whole of a parameter, of which a strategy may hold a part; on ranks but 0 it may be undefined.
using WholeTensor = std::function<at::Tensor(const at::Tensor& parameter)>;

/// Writes adapter_config.json and adapter_model.safetensors: the adapters, modules_to_save and the trained biases. With
/// `whole`, every rank calls it, and rank 0 must have all tensors, `writes` false elsewhere. Throws Error for a module
/// without adapters, or naming the path and cause.
void save_lora(const torch::nn::Module& module, const std::string& folder, const WholeTensor& whole = {},
               bool writes = true);

/// Returns the module's parameters by name as merge_lora would leave them, while the module keeps its adapters. Those
/// that `whole` leaves undefined are undefined. Throws what check_merge throws.
[[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> merged_parameters(const torch::nn::Module& module,
                                                                                const WholeTensor& whole = {});

/// Returns whether a parameter of this name is an adapter's own.
[[nodiscard]] bool is_adapter_parameter(const std::string& name);

/// Returns the adapted layers by name, in the module's order.
[[nodiscard]] std::vector<std::pair<std::string, std::shared_ptr<LoRALayer>>> lora_layers(
    const torch::nn::Module& module);

}  // namespace levin
