// Sees every operator that this thread calls before it runs, whoever calls it: module code, autograd's backward, a
// callback. LibTorch's modules have no forward hooks, and this needs none: a weight whose memory was given back can be
// brought back when, and only when, something is about to read it.
//
// It is a boxed fallback on a dispatch key of its own above autograd and autocast, so an operator passes it once, at
// its outermost call, at the cost of boxing its arguments (about a microsecond).
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>
#include <memory>
#include <vector>

namespace levin {

class OperatorWatch {
 public:
  using Storages = std::vector<c10::StorageImpl*>;

  /// From here to its end; one at a time in a process. `before`: the memory behind all tensors among the operator's
  /// arguments; what it throws, the operator throws. `after`: the memory of those that the operator has written to.
  /// Neither is called for operators that they call. Backward runs under it too, on whatever thread.
  OperatorWatch(std::function<void(const Storages&)> before, std::function<void(const Storages&)> after);
  ~OperatorWatch();
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;

  /// While one lives, operators of this thread pass unseen.
  class Unseen {
   public:
    Unseen();

   private:
    c10::impl::ExcludeDispatchKeyGuard guard_;
  };

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace levin
