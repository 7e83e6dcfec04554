// One of the devices that this process computes on. A GPU is identified by its device; LibTorch's CPU device has no
// index, so the slot distinguishes several logical CPU devices, which share memory and cores, and replace GPUs in
// tests.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace levin {

struct DeviceSlot {
  int64_t index = 0;  // among the slots of the run, from 0
  at::Device device = at::kCPU;

  /// "cpu:1" for the second slot on the CPU, "cuda:1" for a GPU.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool operator==(const DeviceSlot& other) const {
    return index == other.index && device == other.device;
  }
};

/// `count` logical CPU devices.
[[nodiscard]] std::vector<DeviceSlot> cpu_slots(int64_t count);

/// The slot that the calling thread computes for; null outside of any SlotScope.
[[nodiscard]] const DeviceSlot* current_slot();

/// During its lifetime the calling thread computes for a slot: sets current_slot() and LibTorch's current device.
class SlotScope {
 public:
  explicit SlotScope(const DeviceSlot& slot);
  ~SlotScope();
  SlotScope(const SlotScope&) = delete;
  SlotScope& operator=(const SlotScope&) = delete;

 private:
  struct Guard;
  DeviceSlot slot_;
  const DeviceSlot* outer_;
  std::unique_ptr<Guard> guard_;  // only where the device has an index
};

/// The same values on the slot's device, as part of the graph: the tensor itself if it is already there.
[[nodiscard]] at::Tensor move_to(const at::Tensor& tensor, const DeviceSlot& slot);

}  // namespace levin
