// Intercepts every operator that this thread calls, before it runs, from any code: a module, autograd's backward, a
// callback. LibTorch's modules have no forward hooks, and this needs none: a weight whose memory was freed can be
// gathered exactly when an operator is about to read it.
//
// It is a boxed fallback on a separate dispatch key above autograd and autocast (borrowed_keys.h), so an operator
// passes it once, at its outermost call, at the cost of boxing its arguments (about a microsecond). Internal.
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

  /// Active during its lifetime; one at a time per process. `before` gets the storages of all tensors among the
  /// operator's arguments; its exceptions become the operator's. `after` gets the storages that the operator has
  /// written to. Neither is called for operators that they call. Backward is intercepted too, on any thread.
  OperatorWatch(std::function<void(const Storages&)> before, std::function<void(const Storages&)> after);
  ~OperatorWatch();
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;

  /// During its lifetime, operators of this thread are not intercepted.
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
