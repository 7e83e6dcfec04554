#include "levin/precision/full_precision.h"

#include <c10/core/DefaultDtype.h>

namespace levin {

namespace {

class DefaultDtype {
 public:
  explicit DefaultDtype(at::ScalarType dtype) : outer_(c10::get_default_dtype()) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
  }
  ~DefaultDtype() { c10::set_default_dtype(outer_); }
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  caffe2::TypeMeta outer_;
};

}  // namespace

std::shared_ptr<void> TruePrecision::enter_forward(at::DeviceType) {
  return std::make_shared<DefaultDtype>(dtype_);
}

}  // namespace levin
