// Mixed precision within a scope: matrix products in a 16-bit type, sums and losses in float32, chosen by LibTorch op
// by op.
//
//   {
//     const levin::Autocast autocast(at::kCPU, at::kBFloat16);
//     loss = model.forward(x);          // in bfloat16 where that is safe
//   }                                   // the previous mode is restored
//
// Autocast belongs to a thread: a guard affects only the thread that created it, and must be destroyed there; threads
// that are started inside it (a loader's workers) begin without it. Guards nest.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace levin {

/// Options of Autocast.
struct AutocastOptions {
  bool enabled = true;  // false: plain arithmetic inside an outer guard
  /// Whether casts of weights are kept until the outermost guard ends; unset: unchanged. A kept cast does not see
  /// that its weight was updated, and one made under NoGradGuard blocks the gradient of its weight.
  std::optional<bool> cache_enabled = std::nullopt;
};

/// A scope in which LibTorch's autocast is on for one kind of device, as PyTorch's torch.autocast.
class Autocast {
 public:
  /// `dtype`: float16 or bfloat16; unset: what the device uses now. Throws Error for other types.
  explicit Autocast(at::DeviceType device, std::optional<at::ScalarType> dtype = std::nullopt,
                    AutocastOptions options = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool outer_enabled_;
  at::ScalarType outer_dtype_;
  bool outer_cache_enabled_;
};

}  // namespace levin
