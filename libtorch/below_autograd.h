// Sees the operators of a thread between autograd and the devices: autograd records and saves what it needs as always,
// and what an observer does with an operator is invisible to it. Uses LibTorch's dispatcher with a key of
// borrowed_keys.h. Internal.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

namespace c10 {
class OperatorHandle;
}

namespace levin {

using OperatorStack = std::vector<c10::IValue>;

/// Sees the operators of the thread that constructed it, until it is destroyed, before observers constructed earlier
/// do.
class OperatorObserver {
 public:
  OperatorObserver();
  virtual ~OperatorObserver();
  OperatorObserver(const OperatorObserver&) = delete;
  OperatorObserver& operator=(const OperatorObserver&) = delete;

  /// Runs instead of the operator, whose arguments are at the top of the stack; replaces them by its results.
  /// Operators that it calls in turn are not seen.
  virtual void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack) = 0;

 protected:
  /// The operator as the next observer, or else the device, runs it. Only within run().
  void run_below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack);

  /// Runs the operator as the device does. This observer sees the operators that it calls in turn, such as the parts of
  /// a composite one. Only within run().
  static void run_inside(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack);

  /// The keys with which the device is called.
  [[nodiscard]] static c10::DispatchKeySet device_keys(c10::DispatchKeySet keys);

 private:
  OperatorObserver* outer_;
  c10::impl::IncludeDispatchKeyGuard included_;
};

}  // namespace levin
