// Checks whether the weights of a checkpoint fit a module, and describes the differences.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <functional>
#include <string>
#include <vector>

#include "levin/core/options/registry.h"
#include "levin/core/state.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

/// Returns the module's parameters and buffers by name. They share the module's storage.
[[nodiscard]] State module_state(const LightningModule& module);

/// Returns what load_for_inference makes the module from: the class and options of the run file, or only the class if a
/// program has created the module.
[[nodiscard]] ClassSpec model_class(const LightningModule& module);

/// Returns one line for each weight that is missing in the checkpoint, has a different shape there, or is unknown to
/// the module.
[[nodiscard]] std::vector<std::string> weight_differences(const LightningModule& module, const State& checkpoint);
/// Same as above; `own`: the module's weights and buffers by name.
[[nodiscard]] std::vector<std::string> weight_differences(const State& own, const State& checkpoint);

/// Returns why the checkpoint is of another model ("it is of ResNet, and this run's model is MLP"), or "". A module
/// that lacks weights only because its callbacks have not adapted it yet is the same model.
[[nodiscard]] std::string other_model_text(const LightningModule& module, const State& checkpoint);

/// Copies the checkpoint's weights and buffers to the module. Throws CheckpointError that names the classes if they
/// differ, and the first weights that are missing, unexpected or of a different shape. Warns if the weights fit a
/// module of a different class.
void restore_weights(LightningModule& module, const State& checkpoint, const std::string& path);
/// Same as above. `copy`: copies a tensor of the file (the second) to one of the module.
void restore_weights(LightningModule& module, const State& checkpoint, const std::string& path,
                     const std::function<void(const at::Tensor&, const at::Tensor&)>& copy);

/// Throws what restore_weights() would throw if the module had the weights and buffers `own`. Returns
/// weight_differences(), which a module without strict_loading may have.
std::vector<std::string> check_weights(const LightningModule& module, const State& own, const State& checkpoint,
                                       const std::string& path);

}  // namespace levin
