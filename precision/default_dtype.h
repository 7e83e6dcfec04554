#pragma once

#include <c10/core/DefaultDtype.h>

namespace levin {

/// During its lifetime, floating-point tensors are created in this type on every thread, unless a type is given.
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

}  // namespace levin
