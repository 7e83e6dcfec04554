#pragma once

#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace levin {

/// During its lifetime, floating-point tensors are created in this type on every thread, unless a type is given. May
/// end in a different order than it began, as scopes of a pipeline's micro-batches do: the last one to end restores
/// the type from before the first.
class DefaultDtype {
 public:
  explicit DefaultDtype(at::ScalarType dtype) {
    const std::scoped_lock lock(mutex());
    outer_ = c10::get_default_dtype();
    open().push_back(this);
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
  }
  ~DefaultDtype() {
    const std::scoped_lock lock(mutex());
    const auto next = open().erase(std::find(open().begin(), open().end(), this));
    if (next == open().end()) {
      c10::set_default_dtype(outer_);
    } else {
      (*next)->outer_ = outer_;
    }
  }
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex all;
    return all;
  }
  /// In the order in which they began.
  static std::vector<DefaultDtype*>& open() {
    static std::vector<DefaultDtype*> all;
    return all;
  }

  caffe2::TypeMeta outer_;
};

}  // namespace levin
