// LibTorch's profiler (Kineto) and its calls of NVTX. Checked with LibTorch 2.6, 2.7, 2.9, 2.11, 2.13 and 2.15.
// Internal.
#pragma once

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/stubs/base.h>

namespace levin {

/// Returns whether LibTorch's own tables leave the event out. LibTorch 2.7 and older mark no events.
template <class Event = torch::autograd::profiler::KinetoEvent>
[[nodiscard]] bool is_hidden(const Event& event) {
  if constexpr (requires { event.isHiddenEvent(); }) {
    return event.isHiddenEvent();
  } else {
    return false;
  }
}

}  // namespace levin
