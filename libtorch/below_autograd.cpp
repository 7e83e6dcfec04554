#include "levin/libtorch/below_autograd.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "levin/libtorch/borrowed_keys.h"

namespace levin {

namespace {

OperatorObserver*& innermost() {
  thread_local OperatorObserver* observer = nullptr;
  return observer;
}

void call_below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kBelowAutogradKey), stack);
}

void observe(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard inside(kBelowAutogradKey);
  OperatorObserver* observer = innermost();
  // Null on threads that LibTorch starts with this thread's dispatch keys.
  observer != nullptr ? observer->run(op, keys, *stack) : call_below(op, keys, stack);
}

// Registered at the first use, for the rest of the process.
c10::DispatchKey registered_key() {
  static const torch::Library library = register_fallback<&observe>(kBelowAutogradKey);
  return kBelowAutogradKey;
}

}  // namespace

OperatorObserver::OperatorObserver() : outer_(innermost()), included_(registered_key()) {
  innermost() = this;
}

OperatorObserver::~OperatorObserver() {
  innermost() = outer_;
}

void OperatorObserver::run_below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack) {
  outer_ != nullptr ? outer_->run(op, keys, stack) : call_below(op, keys, &stack);
}

void OperatorObserver::run_inside(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack) {
  c10::impl::LocalDispatchKeySet seen = c10::impl::tls_local_dispatch_key_set();
  seen.excluded_ = seen.excluded_.remove(kBelowAutogradKey);
  const c10::impl::ForceDispatchKeyGuard inside(seen);
  call_below(op, keys, &stack);
}

c10::DispatchKeySet OperatorObserver::device_keys(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kBelowAutogradKey);
}

}  // namespace levin
