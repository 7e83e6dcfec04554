// Finds losses of a prediction (N, 1) and a target (N), which LibTorch computes over N x N pairs without an error: a
// mistake that no curve shows. Checked in the first training step of a fit. Internal.
#pragma once

#include <ATen/record_function.h>

namespace levin {

/// A scope that checks LibTorch's element-wise losses on this thread. The first loss whose arguments have different
/// shapes causes a warning with both shapes. PyTorch warns in torch.nn.functional only.
class LossShapeCheck {
 public:
  LossShapeCheck();
  ~LossShapeCheck();
  LossShapeCheck(const LossShapeCheck&) = delete;
  LossShapeCheck& operator=(const LossShapeCheck&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace levin
