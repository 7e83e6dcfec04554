// Counts floating-point operations during its lifetime, backward included: two per multiplication and
// addition of matrix products, convolutions and attention; other operators count nothing.
//
//   levin::FlopCounter counter;
//   net->forward(x).sum().backward();
//   counter.flops();
//
// The formulas are those of torch.utils.flop_counter, so figures compare with PyTorch's. Counts the operators of this
// thread and of autograd's threads for it, not those that a replayed CUDA graph or a compiled kernel runs. One at a
// time.
#pragma once

#include <cstdint>

namespace levin {

class FlopCounter {
 public:
  /// Throws Error if another counter lives.
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  [[nodiscard]] int64_t flops() const;

 private:
  uint64_t handle_;
};

}  // namespace levin
