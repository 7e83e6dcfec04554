// A loss of a prediction (N, 1) and a target (N) is computed without an error, over N x N pairs: a mistake that no
// curve shows. Found in the first training step of a fit. Internal.
#pragma once

#include <ATen/record_function.h>

namespace levin {

/// During its lifetime, LibTorch's element-wise losses on this thread are checked; the first one whose arguments have
/// different shapes causes a warning with both shapes. PyTorch warns in torch.nn.functional only.
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
