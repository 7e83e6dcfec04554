// Which layers of a model LoRA adapts, by the names that its options give. Internal.
#pragma once

#include <string>
#include <vector>

#include "levin/adapters/lora_layer.h"

namespace levin {

/// Whether an entry of target_modules or exclude_modules is a shell pattern.
[[nodiscard]] bool is_pattern(const std::string& entry);

/// The linear layers of a model in its order: torch::nn::Linear and what derives from it, and modules called Conv1D,
/// whose weight is (in, out).
[[nodiscard]] std::vector<LinearLayer> linear_layers(const torch::nn::Module& module);

/// The layer called `name`, of any class with a "weight" of two dimensions but an Embedding; throws ConfigError
/// beginning with `where` if there is none, with the nearest names.
[[nodiscard]] LinearLayer linear_layer(const torch::nn::Module& module, const std::string& name,
                                       const std::string& where);

// Note [How layers are named]
// An entry of target_modules is a layer's name in full ("encoder.layer.0.attention.self.query"), the end of some names
// ("query", "self.query"), as in PEFT, or a shell pattern over names in full ("encoder.layer.[0-3].*"), of whose
// matches those that can be adapted count. "all-linear" is every linear layer but the heads of Hugging Face's models:
// lm_head, classifier, score and what is in them. `outer` ("model."), where names of the whole module begin with it,
// may be left out or not.
//
/// The layers that target_modules names, without those of exclude_modules and modules_to_save. Throws ConfigError with
/// every problem: an entry that matches nothing, or what is no linear layer; nothing to adapt.
[[nodiscard]] std::vector<LinearLayer> lora_targets(const torch::nn::Module& module, const LoRAOptions& options,
                                                    const std::string& outer = "");

/// The submodules that modules_to_save names, in full. Throws ConfigError for an entry that matches nothing.
[[nodiscard]] std::vector<std::string> saved_modules(const torch::nn::Module& module,
                                                     const std::vector<std::string>& entries,
                                                     const std::string& outer = "");

}  // namespace levin
