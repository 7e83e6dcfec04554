// Copies between the host and a device that take place while the device computes, for every backend that has LibTorch's
// streams and events. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <vector>

#include "levin/core/device_work.h"

namespace levin {

/// Copies batches to a device on a stream of its own while the device computes the batch before.
class StreamCopier final : public DeviceCopier {
 public:
  /// Null if the backend has no second stream or no events.
  [[nodiscard]] static std::shared_ptr<StreamCopier> make(at::Device device);

  void send(std::vector<at::Tensor>& tensors) override;
  void receive(const std::vector<at::Tensor>& tensors) override;
  [[nodiscard]] bool uses_pinned_memory() const override { return pins_; }

 private:
  StreamCopier(at::Device device, c10::Stream stream);
  [[nodiscard]] at::Tensor copied_from(const at::Tensor& tensor);

  at::Device device_;
  c10::Stream stream_;
  c10::Event sent_;
  bool pins_;  // the backend has pinned memory
};

/// Reads a small tensor of a device later than it was computed, so that the host need not wait for the device
/// meanwhile. One tensor at a time, on one thread and its current stream.
///
///   read.begin(flags);          // after the device's work so far
///   …                           // the host prepares and launches more
///   const at::Tensor& here = read.wait();
class LateRead {
 public:
  /// Begins to copy `tensor` to the CPU, after the current stream's work so far. Does not block where the backend has
  /// events and pinned memory.
  void begin(const at::Tensor& tensor);
  /// Returns the copy, valid until the next begin(). Blocks until it has been made, not for work that was launched
  /// after begin().
  [[nodiscard]] const at::Tensor& wait();

 private:
  at::Tensor copy_;  // in pinned memory, if `copied_`
  std::optional<c10::Event> copied_ = std::nullopt;
  bool is_late_ = true;  // the backend has events and pinned memory
};

}  // namespace levin
