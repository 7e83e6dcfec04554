// Which layers of a model LoRA adapts, by the names that its options give. Internal.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "levin/adapters/lora_layer.h"
#include "levin/adapters/lora_options.h"

namespace levin {

/// Whether an entry of target_modules or exclude_modules is a shell pattern.
[[nodiscard]] bool is_pattern(const std::string& entry);

/// The linear layers of a model in its order: torch::nn::Linear and what derives from it, and modules called Conv1D,
/// whose weight is (in, out).
[[nodiscard]] std::vector<TargetLayer> linear_layers(const torch::nn::Module& module);

/// The layer called `name`, if it can be adapted; else throws ConfigError beginning with `where`, with the reason, or
/// the nearest names.
[[nodiscard]] TargetLayer target_layer(const torch::nn::Module& module, const std::string& name,
                                       const std::string& where);

// Note [Which layers can be adapted]
// torch::nn::Linear, Embedding, Conv1d, Conv2d and Conv3d, and what derives from them; GPT-2's Conv1D; and by name
// modules of other classes: what KnowsWeightUse says, else a "weight" of two dimensions is a linear layer's, (out, in)
// unless its bias says otherwise, and one of three to five is the kernel of a convolution in one group. Not a
// convolution whose padding PEFT's adapters cannot have: a padding_mode other than zeros, or padding "same" with a
// dilation (PEFT gives lora_A neither); nor transposed convolutions and EmbeddingBag.

// Note [How layers are named]
// An entry of target_modules is a layer's name in full ("encoder.layer.0.attention.self.query"), the end of some names
// ("query", "self.query"), as in PEFT, or a shell pattern over names in full ("encoder.layer.[0-3].*"), of whose
// matches the adaptable layers count, of any kind. "all-linear" is every linear layer but the heads of Hugging Face
// models: lm_head, classifier, score and their submodules. `outer` ("model."), where names of the whole module begin
// with it, may be left out or not.
//
/// The layers that target_modules names, except exclude_modules and modules_to_save. Throws ConfigError with
/// every problem: an entry that matches nothing, or what cannot be adapted; nothing to adapt; two layers
/// with one weight.
[[nodiscard]] std::vector<TargetLayer> lora_targets(const torch::nn::Module& module, const LoRAOptions& options,
                                                    const std::string& outer = "");

/// The submodules that modules_to_save names, in full, in the module's order and none within another: as in PEFT also
/// those whose names end with an entry without a dot before it, "pre_classifier" with "classifier". An entry that
/// matches nothing is left out if `may_be_absent`, else throws ConfigError.
[[nodiscard]] std::vector<std::string> saved_modules(const torch::nn::Module& module,
                                                     const std::vector<std::string>& entries,
                                                     const std::string& outer = "", bool may_be_absent = false);

/// The values of rank_pattern or alpha_pattern (`option`) for these layers, by full names; its keys are names as in
/// target_modules. Throws ConfigError for a key that matches none of them, and for two that give one layer different
/// values.
[[nodiscard]] std::map<std::string, double> pattern_values(const std::vector<TargetLayer>& layers,
                                                           const std::map<std::string, double>& pattern,
                                                           const std::string& option, const std::string& outer);

// What LoRA sees in a module: a layer that it can adapt, or why not. See Note [Which layers can be adapted] in
// lora_targets.h.

/// Whether a module is torch::nn::Linear or derives from it, or is called Conv1D, and has its weight.
[[nodiscard]] bool is_linear_layer(const torch::nn::Module& module);
/// Whether a module is of a class that LoRA knows: a linear layer, an embedding or a convolution.
[[nodiscard]] bool is_known_layer(const torch::nn::Module& module);

/// The layer called `name`, or what it is instead, as the end of a sentence: "norm, a LayerNorm, and …."
[[nodiscard]] std::variant<TargetLayer, std::string> layer_kind(const std::string& name, torch::nn::Module& module);

}  // namespace levin
