// loss.backward() for a training loop: the gradient that backward starts from, a one shaped like the loss, is reused
// from step to step, because making it costs three operator calls. On a GPU, and where steps are recorded, it is made
// in each step: a captured graph must own all memory that it reads, and recorded steps must run the same operators.
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
  /// Replaces what backward() does from now on; empty: the above.
  void replace_by(std::function<void(const at::Tensor&)> own) { own_ = std::move(own); }

 private:
  [[nodiscard]] static bool fits(const at::Tensor& one, const at::Tensor& loss);
  /// Nothing else refers to its memory or has modified it.
  [[nodiscard]] bool untouched(const at::Tensor& one) const;

  std::function<void(const at::Tensor&)> own_ = {};
  bool reuses_ = true;
  at::Tensor one_;
  uint32_t version_ = 0;
};

}  // namespace levin
