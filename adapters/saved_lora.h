// The adapters of a checkpoint, seen from its tensors: which layers of the module need them before it can be loaded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "levin/adapters/lora_options.h"

namespace torch::nn {
class Module;
}

namespace levin {

/// What adapters' outputs are multiplied with: one number, or where layers differ, each one's by its name in full.
using LoRAScalings = std::variant<double, std::map<std::string, double>>;
/// Returns the scalings of an adapted module.
[[nodiscard]] LoRAScalings lora_scalings(const torch::nn::Module& module);

/// The value of a checkpoint that holds them.
inline constexpr const char* kLoRAScaling = "lora_scaling";

/// Type and shape of a checkpoint's tensors, by the module's names.
using SavedShapes = std::map<std::string, std::pair<at::ScalarType, std::vector<int64_t>>>;

/// What a checkpoint's tensors tell about the adapters of its model.
struct SavedLoRA {
  std::vector<std::string> layers = {};  // in full, sorted
  std::map<std::string, int64_t> ranks = {};
  bool use_dora = false;
  Quantize quantize = Quantize::none;
};

/// Unset if no tensor is an adapter's. Does not trust the names: nothing is made from them but this list.
[[nodiscard]] std::optional<SavedLoRA> find_saved_lora(const SavedShapes& tensors);

/// Adapts these layers of a module, so that the checkpoint's tensors can be loaded into it; `scalings` are the run's.
/// A module that is adapted already stays unchanged. Draws from the default generator. Throws CheckpointError, a
/// sentence without its end for detail::naming_file, for a layer that the module does not have or that has no rank or
/// no scaling.
void apply_saved_lora(torch::nn::Module& module, const SavedLoRA& saved, const LoRAScalings& scalings);

/// Returns the scaling that a run with these options, which have no patterns, gave its adapters. Throws CheckpointError
/// if `path` names a folder that cannot be read, whose r and lora_alpha count.
[[nodiscard]] double run_scaling(const LoRAOptions& options);

}  // namespace levin
