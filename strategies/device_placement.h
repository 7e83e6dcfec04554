// The devices that a rank computes on.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "levin/strategies/device_slot.h"

namespace torch::nn {
class Module;
}

namespace levin {

class DeviceCopier;
class StepRecorder;

class DevicePlacement {
 public:
  virtual ~DevicePlacement() = default;

  /// The device of this rank's module and batches.
  [[nodiscard]] virtual at::Device device() const = 0;
  /// Makes this rank use `device`; after join(), before anything else. Throws ConfigError if it cannot.
  virtual void use_device(at::Device device) = 0;
  /// The copier that prefetches batches to the device, one ahead; null: each is copied when it is needed.
  [[nodiscard]] virtual std::shared_ptr<DeviceCopier> make_copier() { return nullptr; }
  /// The recorder that captures steps for the device to replay; null: steps cannot be captured.
  [[nodiscard]] virtual std::shared_ptr<StepRecorder> make_recorder() { return nullptr; }

  /// Whether one process computes on several devices: the trainer then calls use_slots().
  [[nodiscard]] virtual bool takes_several_devices() const { return false; }
  /// Sets the devices of this process, at least one. Called once, before anything else.
  virtual void use_slots(std::vector<DeviceSlot> /*slots*/) {}
  /// The slots whose replicas of the module compute shares of each batch; fewer than two: the module computes it whole.
  [[nodiscard]] virtual std::vector<DeviceSlot> replica_slots() const { return {}; }
  /// Whether the replicas' outputs (predictions) are gathered on device(), or moved to the CPU from their own devices.
  [[nodiscard]] virtual bool gathers_outputs() const { return true; }

  /// Moves the module to its devices. Called after its layers are made, before its optimizers are; every rank.
  virtual void place(torch::nn::Module& module);
};

/// Moves the module's buffers to `device`, and leaves its parameters where they are.
void place_buffers(torch::nn::Module& module, at::Device device);

}  // namespace levin
