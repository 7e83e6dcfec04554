// One of the devices that this process computes on. A GPU is known by its device; LibTorch's CPU device has no index,
// so several logical CPU devices are distinguished by the slot: they share memory and cores, and stand in for GPUs in
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

/// The slot that the calling thread computes for; 0 outside of any SlotScope.
[[nodiscard]] const DeviceSlot& current_slot();

/// Makes the calling thread compute for a slot until it ends: current_slot(), and LibTorch's current device.
class SlotScope {
 public:
  explicit SlotScope(const DeviceSlot& slot);
  ~SlotScope();
  SlotScope(const SlotScope&) = delete;
  SlotScope& operator=(const SlotScope&) = delete;

 private:
  struct Guard;
  DeviceSlot outer_;
  std::unique_ptr<Guard> guard_;  // only where the device has an index
};

/// The same values on the slot's device, as part of the graph: the tensor itself if it is there.
[[nodiscard]] at::Tensor move_to(const at::Tensor& tensor, const DeviceSlot& slot);

}  // namespace levin
