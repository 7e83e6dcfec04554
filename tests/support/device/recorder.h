// Recordings of the test device, as strict as a CUDA graph: a recorded step has not run, a replay calls its operators
// on the same memory, and what waits for the device or reads the host's memory cannot be recorded. As with a graph's
// private pool, memory that the step has allocated is used for nothing else, and what it only reads is not kept.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <vector>

#include "levin/core/device_work.h"
#include "support/device/on_cpu.h"

namespace levin::test {

class TestRecorder final : public StepRecorder {
 public:
  void warm_up(const std::function<void()>& step) override { step(); }
  [[nodiscard]] std::unique_ptr<Recording> record(const std::function<void()>& step) override;
};

/// Throws c10::Error if a step is being recorded: `why` completes "operation not permitted when a step is recorded: ".
void refuse_while_recording(const char* why);

/// Notes one operator while a step is recorded: its arguments when made, its results with done().
class RecordedCall {
 public:
  RecordedCall(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  void done(const torch::jit::Stack& stack) const;

 private:
  const c10::OperatorHandle& op_;
  bool recording_;
  torch::jit::Stack arguments_;
};

/// While a step is recorded, the tensor without its ownership of the memory, for what a replay does; else the tensor.
[[nodiscard]] at::Tensor for_replays(const at::Tensor& tensor);

/// Notes a copy to the device or within it.
void record_copy(const at::Tensor& from, const at::Tensor& to);

/// Runs `kernel` on the CPU and notes it; its results as tensors of the device.
[[nodiscard]] std::vector<at::Tensor> run_recorded(std::function<std::vector<at::Tensor>(OnCpu&)> kernel);

[[nodiscard]] int64_t recordings_made();
[[nodiscard]] int64_t recordings_replayed();
void reset_recordings();

}  // namespace levin::test
