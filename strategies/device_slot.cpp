#include "levin/strategies/device_slot.h"

#include <c10/core/DeviceGuard.h>

namespace levin {

namespace {

const DeviceSlot*& this_slot() {
  thread_local const DeviceSlot* slot = nullptr;
  return slot;
}

}  // namespace

std::string DeviceSlot::text() const {
  return device.has_index() ? device.str() : device.str() + ":" + std::to_string(index);
}

std::vector<DeviceSlot> cpu_slots(int64_t count) {
  std::vector<DeviceSlot> slots;
  for (int64_t k = 0; k < count; ++k) slots.push_back({k, at::kCPU});
  return slots;
}

const DeviceSlot* current_slot() {
  return this_slot();
}

struct SlotScope::Guard {
  explicit Guard(at::Device to) : guard(to) {}
  c10::DeviceGuard guard;
};

SlotScope::SlotScope(const DeviceSlot& slot) : slot_(slot), outer_(this_slot()) {
  if (slot.device.has_index()) guard_ = std::make_unique<Guard>(slot.device);
  this_slot() = &slot_;
}

SlotScope::~SlotScope() {
  this_slot() = outer_;
}

at::Tensor move_to(const at::Tensor& tensor, const DeviceSlot& slot) {
  if (!tensor.defined() || tensor.device() == slot.device) return tensor;
  // A copy to the CPU must be complete on return: nothing on the CPU waits for a GPU.
  return tensor.to(slot.device, tensor.scalar_type(), /*non_blocking=*/!slot.device.is_cpu());
}

}  // namespace levin
