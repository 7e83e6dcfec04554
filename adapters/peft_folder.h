// The folder of an adapter in PEFT's layout: adapter_config.json and adapter_model.safetensors. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "levin/adapters/lora_options.h"

namespace levin {

struct PeftFolder {
  /// r, lora_alpha, use_rslora, use_dora, bias, modules_to_save, target_modules as it says.
  LoRAOptions options = {};
  bool fan_in_fan_out = false;             // the adapted weights are (in, out)
  std::vector<std::string> layers{};       // the adapted ones, in the order of their names; when read
  std::map<std::string, int64_t> ranks{};  // of layers that have another than r, by their names in full
  std::map<std::string, double> alphas{};  // the same of lora_alpha
  /// By the model's names, without "base_model.model.": "h.0.attn.c_attn.lora_A.weight", "classifier.weight". Those of
  /// embeddings and magnitudes end with ".weight" too, as others: "wte.lora_embedding_A.weight".
  std::map<std::string, at::Tensor> tensors = {};
};

/// Throws CheckpointError naming the file and what is wrong with it: it is missing, no JSON, of another method than
/// LoRA, uses a part of it that Levin does not have, or belongs to other weights than the model's (PiSSA).
[[nodiscard]] PeftFolder read_peft_folder(const std::string& folder);

/// Each file is written whole or not at all. Throws Error naming path and cause. Tensors of any device.
void write_peft_folder(const std::string& folder, const PeftFolder& adapter);

/// Calls `rename` for every name of a layer, module or tensor.
void rename_in(PeftFolder& adapter, const std::function<std::string(const std::string&)>& rename);

// The regular expressions of rank_pattern and alpha_pattern in an adapter_config.json.

/// The steps that all expressions of one file may take together, one or two seconds' work: enough for a rank and a
/// lora_alpha of each of about a thousand layers.
inline constexpr int64_t kMaxPatternSteps = int64_t{1} << 26;

/// Returns the layers that PEFT finds with a key of these patterns: the regular expression matches the whole name or
/// the part after one of its dots. Subtracts the steps it takes from `steps_left`. Throws CheckpointError, with a
/// message that lacks the full stop, if `expression` is invalid, needs too much backtracking, or no steps are left.
[[nodiscard]] std::vector<std::string> matching_layers(const std::string& expression,
                                                       const std::vector<std::string>& layers, int64_t& steps_left);

}  // namespace levin
