// What recordings of a step depend on besides the shape of its batch: where it changes, they are made anew. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace torch::nn {
class Module;
}

namespace levin {

struct Run;

struct RecordingSettings {
  int64_t window_size = 0;
  int64_t optimizer_version = 0;
  std::vector<double> numbers = {};       // momentum and weight decay of each group
  std::vector<const void*> tensors = {};  // where they are
  std::vector<bool> flags = {};           // which parameters are trained, which modules are in training mode
  bool operator==(const RecordingSettings&) const = default;
};

/// Reads them before each window. Made once the optimizers are set up; the module keeps its layers meanwhile.
class SettingsReader {
 public:
  explicit SettingsReader(const Run& run);

  /// `with_update`: the recordings contain the updates.
  [[nodiscard]] RecordingSettings read(bool with_update) const;
  /// What is trained, and the module's other parameters and buffers.
  [[nodiscard]] const std::vector<at::Tensor>& tensors() const { return tensors_; }

 private:
  const Run& run_;
  std::vector<at::Tensor> parameters_;  // the optimizer's
  std::vector<at::Tensor> tensors_;
  std::vector<const torch::nn::Module*> modules_;  // the module's own
};

}  // namespace levin
