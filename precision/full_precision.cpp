#include "levin/precision/full_precision.h"

#include <c10/core/DefaultDtype.h>

namespace levin {

void TruePrecision::enter_forward(at::DeviceType) {
  if (depth_++ > 0) return;
  outer_dtype_ = c10::typeMetaToScalarType(c10::get_default_dtype());
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype_));
}

void TruePrecision::leave_forward(at::DeviceType) {
  if (--depth_ == 0) c10::set_default_dtype(c10::scalarTypeToTypeMeta(outer_dtype_));
}

}  // namespace levin
