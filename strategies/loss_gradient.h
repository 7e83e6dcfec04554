// loss.backward() for a training loop: the gradient that backward starts from, a one shaped like the loss, is reused
// from step to step, because making it costs three operator calls, and a kernel on a GPU. Where steps are recorded it
// is made in each step: a captured graph must own all memory that it reads, and recorded steps must run the same
// operators.
//
// Backward runs on the thread that calls it. LibTorch would have a GPU's part run on a thread of that GPU, which is
// needed only for several GPUs at once: handing over and back costs two wake-ups of a thread in each step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>

namespace levin {

class LossGradient {
 public:
  /// Accumulates the gradients of `loss` (one element, any shape) in the leaves it was computed from, as
  /// loss.backward() does, and throws c10::Error as that does. Not thread-safe.
  void backward(const at::Tensor& loss);
  /// From now on the gradient it starts from is made in each step.
  void reuse_nothing() { reuses_ = false; }
  /// From now on each device's part of backward runs on a thread of its own, in parallel.
  void use_device_threads() { on_this_thread_ = false; }
  /// Replaces what backward() does from now on; empty: the above.
  void replace_by(std::function<void(const at::Tensor&)> own) { own_ = std::move(own); }

 private:
  void run(const at::Tensor& loss);
  [[nodiscard]] static bool fits(const at::Tensor& one, const at::Tensor& loss);
  /// Nothing else refers to its memory or has modified it.
  [[nodiscard]] bool untouched(const at::Tensor& one) const;

  std::function<void(const at::Tensor&)> own_ = {};
  bool reuses_ = true;
  bool on_this_thread_ = true;
  at::Tensor one_;
  uint32_t version_ = 0;
};

}  // namespace levin
