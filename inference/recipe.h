// How a model is made and what is loaded into it, according to the files of a run.
#pragma once

#include <optional>
#include <string>

#include "levin/adapters/saved_lora.h"
#include "levin/core/options/registry.h"
#include "levin/core/options/which_checkpoint.h"
#include "levin/core/state.h"
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
  std::string adapter = "";                      // a PEFT folder to apply to the loaded model
};

/// `path`: a checkpoint; a run's folder, whose run.json names the best checkpoint; a folder with checkpoints, of which
/// the newest is taken; a Hugging Face folder; or a PEFT folder that names its base model as a folder. Checkpoints that
/// cannot be read are named in a warning and passed over. What a checkpoint lacks is read from its run's config.yaml.
/// `class_path`: the user's, "" for the files'. Reads no weights. Throws CheckpointError and ConfigError as
/// load_for_inference.
[[nodiscard]] Recipe read_recipe(const std::string& path, WhichCheckpoint which, const std::string& class_path);

}  // namespace levin
