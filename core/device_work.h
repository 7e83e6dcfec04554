// What a device does beside the host: copies of batches that are not needed yet, and steps that it repeats by itself.
// A strategy gives the loop these for its device; the CUDA component has them for GPUs.
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

  /// Starts to copy those of `tensors` that are on the CPU, beside whatever the device is doing, and puts the copies in
  /// their place. Nobody may use the copies before receive(). The host waits for nothing.
  virtual void send(std::vector<at::Tensor>& tensors) = 0;

  /// What the device is given from now on waits for the copies of the last send(). The host waits for nothing.
  virtual void receive(const std::vector<at::Tensor>& tensors) = 0;
};

/// What a device was asked to do once, to be done again.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Lets the device do all of it again, on the same memory. The host waits for nothing.
  virtual void replay() = 0;
};

class StepRecorder {
 public:
  virtual ~StepRecorder() = default;

  /// Runs `step` as it is, but where recordings are made, so that what libraries do only once is done.
  virtual void warm_up(const std::function<void()>& step) = 0;

  /// Records what `step` asks the device to do, which does none of it yet. Throws what `step` throws, and c10::Error if
  /// it waits for the device.
  [[nodiscard]] virtual std::unique_ptr<Recording> record(const std::function<void()>& step) = 0;
};

}  // namespace levin
