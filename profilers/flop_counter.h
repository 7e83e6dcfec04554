// Counts floating-point operations during its lifetime, backward included: two per multiplication and
// addition of matrix products, convolutions and attention; other operators count nothing.
//
//   levin::FlopCounter counter;
//   net->forward(x).sum().backward();
//   counter.flops();
//
// The formulas follow torch.utils.flop_counter, so the counts compare with PyTorch's. Counts the operators of this
// thread and of autograd's threads for it, but not the operators within replayed CUDA graphs and compiled kernels.
#pragma once

#include <cstdint>

namespace levin {

/// A count of floating-point operations, from construction on. At most one exists in a process at a time.
class FlopCounter {
 public:
  /// Throws Error if a counter exists.
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  /// Returns the operations counted so far.
  [[nodiscard]] int64_t flops() const;

 private:
  uint64_t handle_;
};

}  // namespace levin
