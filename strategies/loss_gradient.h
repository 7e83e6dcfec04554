// loss.backward() for a training loop: the gradient that backward starts from, a one shaped like the loss, is kept
// from step to step instead of being made in each, which costs three operator calls. On a GPU it is made in each: a
// recorded step must own all memory that it reads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>

namespace levin {

class LossGradient {
 public:
  /// Adds the gradients of `loss` (one element, any shape) to the leaves it was computed from, as loss.backward()
  /// does. Throws c10::Error as that does. One thread at a time.
  void backward(const at::Tensor& loss);
  /// What backward() does from here on instead; empty: the above.
  void replace_by(std::function<void(const at::Tensor&)> own) { own_ = std::move(own); }

 private:
  [[nodiscard]] static bool fits(const at::Tensor& one, const at::Tensor& loss);
  /// Nobody else holds its memory or has written to it.
  [[nodiscard]] bool untouched(const at::Tensor& one) const;

  std::function<void(const at::Tensor&)> own_ = {};
  at::Tensor one_;
  uint32_t version_ = 0;
};

}  // namespace levin
