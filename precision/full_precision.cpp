#include "levin/precision/full_precision.h"

#include "levin/precision/default_dtype.h"

namespace levin {

std::shared_ptr<void> TruePrecision::enter_forward(at::DeviceType) {
  return std::make_shared<DefaultDtype>(dtype_);
}

}  // namespace levin
