// The folder of an adapter in PEFT's layout: adapter_config.json and adapter_model.safetensors. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "levin/adapters/lora_options.h"

namespace levin {

struct PeftFolder {
  LoRAOptions options = {};           // r, lora_alpha, use_rslora, bias, modules_to_save, target_modules as it says
  bool fan_in_fan_out = false;        // the adapted weights are (in, out)
  std::vector<std::string> layers{};  // the adapted ones, in the order of their names; when read
  /// By the model's names, without "base_model.model.": "h.0.attn.c_attn.lora_A.weight", "classifier.weight". Those of
  /// embeddings end with ".weight" too, as others: "wte.lora_embedding_A.weight".
  std::map<std::string, at::Tensor> tensors = {};
};

/// Throws CheckpointError naming the file and what is wrong with it: it is missing, no JSON, of another method than
/// LoRA, or uses a part of it that Levin does not have (DoRA, ranks that differ by layer).
[[nodiscard]] PeftFolder read_peft_folder(const std::string& folder);

/// Each file is written whole or not at all. Throws Error naming path and cause. Tensors of any device.
void write_peft_folder(const std::string& folder, const PeftFolder& adapter);

}  // namespace levin
