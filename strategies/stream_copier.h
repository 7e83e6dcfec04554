// Copies batches to a device on a stream of their own while the device computes the batch before, for every backend
// that has LibTorch's streams and events. Internal.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <vector>

#include "levin/core/device_work.h"

namespace levin {

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

}  // namespace levin
