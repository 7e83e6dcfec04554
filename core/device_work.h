// Work of a device that is asynchronous to the host: copies of batches ahead of time, and replay of captured steps. A
// strategy provides these for its device; the CUDA component implements them for GPUs.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace levin {

/// Copies batches to a device one ahead. One thread; send() and receive() take turns.
class DeviceCopier {
 public:
  virtual ~DeviceCopier() = default;

  /// Starts to copy those of `tensors` that are on the CPU, in parallel with the device's other work, and replaces them
  /// by the copies. The copies must not be used before receive(). Does not block the host.
  virtual void send(std::vector<at::Tensor>& tensors) = 0;

  /// Subsequent work of the device waits for the copies of the last send(). Does not block the host.
  virtual void receive(const std::vector<at::Tensor>& tensors) = 0;

  /// Whether it copies from pinned memory, so that batches should be made there.
  [[nodiscard]] virtual bool uses_pinned_memory() const { return false; }
};

/// A captured sequence of device work, which can be replayed.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Replays it on the same memory. Does not block the host.
  virtual void replay() = 0;

  /// The memory that replay() changes and that was there before the step, as tensors of bytes. Only if the recorder
  /// runs_step().
  [[nodiscard]] virtual std::vector<at::Tensor> changed_memory() const { return {}; }
  /// How many references to the memory of `tensor` it holds.
  [[nodiscard]] virtual size_t references_to(const at::Tensor& /*tensor*/) const { return 0; }
  /// The states of the random number generators that it draws from besides LibTorch's default ones, as tensors of
  /// bytes.
  [[nodiscard]] virtual std::vector<at::Tensor> own_random_state() const { return {}; }
  virtual void set_own_random_state(const std::vector<at::Tensor>& /*state*/) {}
  /// Runs `step`, and notes what it receives from other ranks. Returns what it does that was not recorded, as a clause
  /// that continues a sentence ("aten::mul got …"), or "". Only if the recorder runs_step().
  [[nodiscard]] virtual std::string run_beside(const std::function<void()>& step) {
    step();
    return "";
  }
  /// As replay(), but nothing is sent to other ranks: it receives what the step of the last run_beside() received.
  virtual void replay_beside() { replay(); }
};

class StepRecorder {
 public:
  virtual ~StepRecorder() = default;

  /// Runs `step` without capturing it, but in the capturing context, so that libraries do their one-time work.
  virtual void warm_up(const std::function<void()>& step) = 0;

  /// Captures the device work of `step`, without running it unless runs_step(). Throws what `step` throws, and
  /// c10::Error if it waits for the device. Null if it cannot be repeated, for the reason refusal().
  [[nodiscard]] virtual std::unique_ptr<Recording> record(const std::function<void()>& step) = 0;

  /// Whether record() also runs the step. What the host does within it is not seen then, so replays have to be compared
  /// with the step itself.
  [[nodiscard]] virtual bool runs_step() const { return false; }
  /// Why the last record() returned null: a clause ("aten::item reads a number …").
  [[nodiscard]] virtual std::string refusal() const { return ""; }
};

}  // namespace levin
