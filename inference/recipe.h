// What the files of a run say of its model: how it is made, and what is loaded into it.
#pragma once

#include <optional>
#include <string>

#include "levin/adapters/saved_lora.h"
#include "levin/core/component.h"
#include "levin/core/state.h"
#include "levin/inference/find_model.h"
#include "levin/precision/precision.h"

namespace levin {

struct Recipe {
  std::string source = "";  // for messages
  ClassSpec model = {};
  std::string no_model = "";  // why model is empty, for messages: a clause
  Component<Precision> precision = "32-true";
  State state = {};                              // for on_load_checkpoint: all but weights and the trainer's tensors
  std::string weights = "";                      // a checkpoint; "": the module reads its own
  std::optional<SavedLoRA> lora = std::nullopt;  // the checkpoint's adapters
  LoRAScalings lora_scalings = 0.0;              // of these
  std::string adapter = "";                      // a folder of PEFT's to apply to the loaded model
};

/// `given`: the path that the user gave, and `found` what find_model made of it. What a checkpoint does not say is read
/// from its run's config.yaml. `class_path`: the user's, "" for the files'. Reads no weights. Throws CheckpointError
/// and ConfigError as load_for_inference.
[[nodiscard]] Recipe read_recipe(const std::string& given, const FoundModel& found, const std::string& class_path);

}  // namespace levin
