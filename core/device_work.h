// Work of a device that is asynchronous to the host: copies of batches ahead of time, and replay of captured steps. A
// strategy provides these for its device; the CUDA component implements them for GPUs.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace levin {

/// A copier that brings each batch to a device while the one before is computed. Used by one thread, which calls send()
/// and receive() in turn.
class DeviceCopier {
 public:
  virtual ~DeviceCopier() = default;

  /// Starts to copy the CPU tensors among `tensors`, in parallel with the device's other work, and replaces them by the
  /// copies. The copies must not be used before receive(). Does not block the host.
  virtual void send(std::vector<at::Tensor>& tensors) = 0;

  /// Subsequent work of the device waits for the copies of the last send(). Does not block the host.
  virtual void receive(const std::vector<at::Tensor>& tensors) = 0;

  /// Returns true if copies start from pinned memory, so that batches should be created there.
  [[nodiscard]] virtual bool uses_pinned_memory() const { return false; }
};

/// A captured sequence of device work, which can be replayed.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Replays it on the same memory. Does not block the host.
  virtual void replay() = 0;

  /// Returns the memory that replay() changes and that existed before the step, as tensors of bytes. Only for recorders
  /// with runs_step().
  [[nodiscard]] virtual std::vector<at::Tensor> changed_memory() const { return {}; }
  /// Returns how many references to the memory of `tensor` the recording holds.
  [[nodiscard]] virtual size_t references_to(const at::Tensor& /*tensor*/) const { return 0; }
  /// Returns the states of the random number generators that the step draws from in addition to LibTorch's default
  /// ones, as tensors of bytes.
  [[nodiscard]] virtual std::vector<at::Tensor> own_random_state() const { return {}; }
  virtual void set_own_random_state(const std::vector<at::Tensor>& /*state*/) {}
  /// Runs `step` and keeps what it receives from other ranks. Returns how it differs from the recorded step, as a
  /// clause that continues a sentence ("aten::mul got …"), or "". Only for recorders with runs_step().
  [[nodiscard]] virtual std::string run_beside(const std::function<void()>& step) {
    step();
    return "";
  }
  /// Replays without sending anything to other ranks: receives what the step of the last run_beside() received.
  virtual void replay_beside() { replay(); }
};

/// The interface that makes recordings of steps. Used by the training thread.
class StepRecorder {
 public:
  virtual ~StepRecorder() = default;

  /// Runs `step` without capturing it, but in the capturing context, so that libraries do their one-time work.
  virtual void warm_up(const std::function<void()>& step) = 0;

  /// Captures the device work of `step`, without running it unless runs_step(). Returns null if the step cannot be
  /// repeated; refusal() is the reason. Throws what `step` throws, and c10::Error if it waits for the device.
  [[nodiscard]] virtual std::unique_ptr<Recording> record(const std::function<void()>& step) = 0;

  /// Returns true if record() also runs the step. Work of the host within it is not captured then, so replays have to
  /// be compared with the step itself.
  [[nodiscard]] virtual bool runs_step() const { return false; }
  /// Returns why the last record() returned null, as a clause ("aten::item reads a number …").
  [[nodiscard]] virtual std::string refusal() const { return ""; }
};

}  // namespace levin
