// Work of a device that is asynchronous to the host: copies of batches ahead of time, and replay of captured steps. A
// strategy provides these for its device; the CUDA component implements them for GPUs.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
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
};

/// A captured sequence of device work, which can be replayed.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Replays it on the same memory. Does not block the host.
  virtual void replay() = 0;
};

class StepRecorder {
 public:
  virtual ~StepRecorder() = default;

  /// Runs `step` without capturing it, but in the capturing context, so that libraries do their one-time work.
  virtual void warm_up(const std::function<void()>& step) = 0;

  /// Captures the device work of `step` without running it. Throws what `step` throws, and c10::Error if
  /// it waits for the device.
  [[nodiscard]] virtual std::unique_ptr<Recording> record(const std::function<void()>& step) = 0;
};

}  // namespace levin
