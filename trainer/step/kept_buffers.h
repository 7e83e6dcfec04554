// With nonfinite_loss: skip, what a skipped batch has made nan or inf in the module's buffers goes back. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace levin {

struct Run;

/// Copies of a module's floating-point buffers at the beginning of an accumulation window. A batch whose inputs contain
/// nan would otherwise leave nan in running statistics (BatchNorm), although its update is skipped.
class KeptBuffers {
 public:
  /// Null if the policy is not to skip, or if the module has no such buffer.
  [[nodiscard]] static std::shared_ptr<KeptBuffers> make(const Run& run);

  explicit KeptBuffers(std::vector<at::Tensor> buffers);
  /// At the beginning of a window. Does not block on a device.
  void save();
  /// Buffers that are nan or inf, and were finite when they were saved, get the saved values. Blocks on a device.
  void restore_nonfinite();
  /// At the window's end: they get them again, because it may have found out late that one of its batches is bad, and
  /// then none of them counts.
  void end_window();

 private:
  std::vector<at::Tensor> buffers_, saved_;
  std::vector<size_t> restored_ = {};
};

}  // namespace levin
