// What LibTorch keeps for each thread and passes on to the threads that compute for it. Internal.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <c10/core/AutogradState.h>

namespace levin {

/// The modes of the thread that constructs it: gradients, inference, autocast, dispatch keys, observers of operators.
using at::ThreadLocalState;
/// A scope in which the calling thread has the modes of another.
using at::ThreadLocalStateGuard;

/// A scope in which backward runs the nodes of GPUs on the calling thread, if `on` is false; as Python's
/// torch.autograd.set_multithreading_enabled.
class AutogradThreads {
 public:
  explicit AutogradThreads(bool on) : before_(state().get_multithreading_enabled()) {
    state().set_multithreading_enabled(before_ && on);
  }
  ~AutogradThreads() { state().set_multithreading_enabled(before_); }
  AutogradThreads(const AutogradThreads&) = delete;
  AutogradThreads& operator=(const AutogradThreads&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  bool before_;
};

}  // namespace levin
