// LibTorch's profiler (Kineto) and its calls of NVTX. Internal.
#pragma once

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <set>

namespace levin {

/// A recording of the process's operators; on request also of the GPU's work, the operators' shapes and their memory.
struct KinetoRecording {
  bool on_gpu = false, shapes = false, memory = false;

  void prepare() const { torch::autograd::profiler::prepareProfiler(config(), activities()); }
  void start() const { torch::autograd::profiler::enableProfiler(config(), activities()); }
  [[nodiscard]] static auto finish() { return torch::autograd::profiler::disableProfiler(); }

 private:
  using Activity = torch::profiler::impl::ActivityType;
  using Config = torch::profiler::impl::ProfilerConfig;
  [[nodiscard]] Config config() const { return Config(torch::profiler::impl::ProfilerState::KINETO, shapes, memory); }
  [[nodiscard]] std::set<Activity> activities() const {
    return on_gpu ? std::set{Activity::CPU, Activity::CUDA} : std::set{Activity::CPU};
  }
};

/// Returns whether LibTorch's own tables leave the event out. LibTorch 2.8 and older mark no events.
template <class Event = torch::autograd::profiler::KinetoEvent>
[[nodiscard]] bool is_hidden(const Event& event) {
  if constexpr (requires { event.isHiddenEvent(); }) {
    return event.isHiddenEvent();
  } else {
    return false;
  }
}

/// NVTX in LibTorch's CUDA part, if that is loaded.
struct CudaRanges {
  [[nodiscard]] static bool exist() { return torch::profiler::impl::cudaStubs()->enabled(); }
  static void push(const char* name) { torch::profiler::impl::cudaStubs()->rangePush(name); }
  static void pop() { torch::profiler::impl::cudaStubs()->rangePop(); }
};

}  // namespace levin
