// The adapters of a checkpoint, seen from its tensors: which layers of the module need them before it can be loaded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/adapters/lora_options.h"

namespace torch::nn {
class Module;
}

namespace levin {

/// The value of a checkpoint that holds what its adapters' outputs are multiplied with.
inline constexpr const char* kLoRAScaling = "lora_scaling";

/// Type and shape of a checkpoint's tensors, by the module's names.
using SavedShapes = std::map<std::string, std::pair<at::ScalarType, std::vector<int64_t>>>;

struct SavedLoRA {
  std::vector<std::string> layers = {};  // in full, sorted
  int64_t r = 0;
  Quantize quantize = Quantize::none;
};

/// Unset if no tensor is an adapter's. Does not trust the names: nothing is made from them but this list.
[[nodiscard]] std::optional<SavedLoRA> find_saved_lora(const SavedShapes& tensors);

/// Adapts these layers of a module, for the checkpoint's tensors to be loaded into it; `scaling` is what lora_scaling
/// gave in the run. A module that is adapted already stays as it is. Draws from the default generator. Throws
/// CheckpointError, a sentence without its end for detail::naming_file, for a layer that the module does not have.
void apply_saved_lora(torch::nn::Module& module, const SavedLoRA& saved, double scaling);

/// What a run with these options scaled its adapters with. Throws CheckpointError if `path` names a folder that cannot
/// be read, whose r and lora_alpha count.
[[nodiscard]] double run_scaling(const LoRAOptions& options);

}  // namespace levin
