#include "levin/strategies/device_placement.h"

#include <c10/core/DeviceGuard.h>
#include <torch/nn/module.h>

#include "levin/core/device_work.h"
#include "levin/core/options/error.h"
#include "levin/libtorch/tensor_memory.h"
#include "levin/strategies/accelerator.h"

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
  if (slot.device.has_index()) guard_ = std::make_shared<Guard>(slot.device);
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

namespace {

// Module::to only handles LibTorch's own backends.
bool needs_help(const at::Tensor& tensor, at::Device device) {
  constexpr auto kOutside = c10::DeviceType::PrivateUse1;
  return tensor.device() != device && (tensor.device().type() == kOutside || device.type() == kOutside);
}

}  // namespace

void DevicePlacement::use_device(at::Device device) {
  device_ = device;
  if (device.type() == this->device().type()) return;
  throw ConfigError("TrainerOptions.strategy: it runs on " + this->device().str() + " and not on " + device.str() +
                    ". Use accelerator: cpu, or override use_device in the strategy's placement.");
}

std::shared_ptr<DeviceCopier> DevicePlacement::make_copier() {
  return device().is_cpu() ? nullptr : accelerator(device().type()).make_copier(device());
}

void DevicePlacement::place(torch::nn::Module& module) {
  move_module(module, device());
}

void place_buffers(torch::nn::Module& module, at::Device device) {
  for (at::Tensor& buffer : module.buffers()) set_tensor_data(buffer, buffer.to(device));
}

void move_module(torch::nn::Module& module, at::Device device) {
  const at::NoGradGuard no_grad;
  for (auto tensors : {module.parameters(), module.buffers()}) {
    for (at::Tensor& tensor : tensors) {
      if (needs_help(tensor, device)) set_tensor_data(tensor, tensor.to(device));
    }
  }
  module.to(device);
}

}  // namespace levin
