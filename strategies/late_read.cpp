#include "levin/strategies/late_read.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace levin {

void LateRead::begin(const at::Tensor& tensor) {
  if (is_late_) {
    try {
      const bool fits = copied_ && copy_.sizes() == tensor.sizes() && copy_.scalar_type() == tensor.scalar_type();
      if (!fits) copy_ = at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(true));
      if (!copied_) copied_.emplace(tensor.device().type());
      copy_.copy_(tensor, /*non_blocking=*/true);
      copied_->record(c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
      return;
    } catch (const c10::Error&) {  // "Backend doesn't support …"
      is_late_ = false;
      copied_.reset();
    }
  }
  copy_ = tensor.cpu();
}

const at::Tensor& LateRead::wait() {
  if (copied_ && !copied_->query()) copied_->synchronize();
  return copy_;
}

}  // namespace levin
