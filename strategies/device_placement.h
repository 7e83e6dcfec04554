// Where a rank computes.
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

  /// The device that this rank's module and batches live on.
  [[nodiscard]] virtual at::Device device() const = 0;
  /// Puts this rank on `device`; after join(), before anything else. Throws ConfigError if it cannot be there.
  virtual void use_device(at::Device device) = 0;
  /// What copies batches to the device one ahead; null: each is copied where it is needed.
  [[nodiscard]] virtual std::shared_ptr<DeviceCopier> make_copier() { return nullptr; }
  /// What records steps for the device to repeat; null: they cannot be recorded.
  [[nodiscard]] virtual std::shared_ptr<StepRecorder> make_recorder() { return nullptr; }

  /// Whether one process of it computes on several devices: the trainer then calls use_slots().
  [[nodiscard]] virtual bool takes_several_devices() const { return false; }
  /// The devices of this process, at least one. Once, before anything else.
  virtual void use_slots(std::vector<DeviceSlot> /*slots*/) {}
  /// Where replicas of the module compute shares of each batch; fewer than two: the module computes it whole.
  [[nodiscard]] virtual std::vector<DeviceSlot> replica_slots() const { return {}; }
  /// Whether what replicas return (predictions) comes together on device() first, or goes to the CPU from where it is.
  [[nodiscard]] virtual bool gathers_outputs() const { return true; }

  /// Moves the module to where it computes. After its layers are made, before its optimizers are; every rank.
  virtual void place(torch::nn::Module& module);
};

/// Moves the module's buffers to `device`, and leaves its parameters where they are.
void place_buffers(torch::nn::Module& module, at::Device device);

}  // namespace levin
