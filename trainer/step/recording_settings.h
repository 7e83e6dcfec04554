// What recordings of a step depend on in addition to the shape of its batch. If it changes, they are made again.
// Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "levin/trainer/lightning_module.h"

namespace torch::nn {
class Module;
}

namespace levin {

class LightningModule;
class Optimizer;

/// The settings at the time of a recording.
struct RecordingSettings {
  int64_t window_size = 1;
  int64_t optimizer_version = 0;
  std::vector<double> numbers = {};       // of each group: momentum, weight decay, a learning rate that is recorded
  std::vector<const void*> tensors = {};  // addresses of weights and buffers
  std::vector<int64_t> layouts = {};      // their offsets, sizes and strides
  std::vector<bool> flags = {};           // which of them require gradients, which modules are in training mode
  bool operator==(const RecordingSettings&) const = default;

  /// Returns whether a window that ran eagerly with `other` has prepared a recording with these settings.
  [[nodiscard]] bool is_prepared_by(const RecordingSettings& other) const {
    return optimizer_version == other.optimizer_version && tensors == other.tensors && flags == other.flags;
  }
};

/// Reads the settings before each batch. The module must keep its layers during the reader's lifetime.
class SettingsReader {
 public:
  /// `trained`: parameters of the optimizer, which the module need not have registered.
  explicit SettingsReader(const LightningModule& module, const std::vector<at::Tensor>& trained = {});

  /// `optimizer`: the recordings contain its updates; null: they contain none.
  [[nodiscard]] RecordingSettings read(const Optimizer* optimizer = nullptr, int64_t window_size = 1) const;
  /// Returns the trained parameters, and the module's other parameters and buffers.
  [[nodiscard]] const std::vector<at::Tensor>& tensors() const { return tensors_; }

 private:
  const LightningModule& module_;
  std::vector<at::Tensor> tensors_;
  std::vector<const torch::nn::Module*> modules_;  // the module's own
};

/// Returns the module's parameters and buffers, and the optimizer's parameters (`trained`) that are not registered.
[[nodiscard]] inline std::vector<at::Tensor> tensors_of_step(const LightningModule& module,
                                                             const std::vector<at::Tensor>& trained) {
  std::vector<at::Tensor> tensors;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& some : {module.parameters(), trained, module.buffers()}) {
    for (const at::Tensor& tensor : some) {
      if (seen.insert(tensor.unsafeGetTensorImpl()).second) tensors.push_back(tensor);
    }
  }
  return tensors;
}

}  // namespace levin
