// A loss of a prediction (N, 1) and a target (N) is computed without an error, over N x N pairs: the mistake that no
// curve shows. Found in the first training step of a fit. Internal.
#pragma once

#include <ATen/record_function.h>

namespace levin {

/// While one lives on this thread, LibTorch's element-wise losses are looked at; the first whose two arguments have
/// different shapes is a warning with both. PyTorch: warns too, from torch.nn.functional alone.
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
