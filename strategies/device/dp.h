// Data parallel within one process: replicas of the module on several devices each compute a part of every batch, and
// their gradients are added to the module's own. The batch size is the loader's: it is not multiplied by the devices.
//
//   levin::Trainer trainer({.devices = std::vector<std::string>{"cpu", "cpu"}, .strategy = "dp"});
//   trainer: {accelerator: gpu, devices: 4, strategy: dp}
//
// ddp does the same with one process per device and is faster: here the weights are copied to all devices in each step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "levin/strategies/strategy.h"

namespace levin {

/// The placement on several devices of one process; the first is device(). Base of the placements of dp and
/// ModelParallel.
class SlotPlacement : public DevicePlacement {
 public:
  [[nodiscard]] at::Device device() const override { return slots_.front().device; }
  [[nodiscard]] std::shared_ptr<DeviceCopier> make_copier() override { return nullptr; }
  [[nodiscard]] bool takes_several_devices() const override { return true; }
  /// Throws ConfigError if `slots` is empty.
  void use_slots(std::vector<DeviceSlot> slots) override;

 protected:
  [[nodiscard]] const std::vector<DeviceSlot>& slots() const { return slots_; }

 private:
  std::vector<DeviceSlot> slots_ = cpu_slots(1);
};

/// dp: replicas on several devices of one process. The loss of a batch is the mean of its replicas' losses, weighted by
/// their samples; predictions are gathered on the first device.
class DataParallelStrategy final : public Strategy {
 public:
  DataParallelStrategy();
  [[nodiscard]] std::string name() const override { return "dp"; }
};

/// dp_balanced: like dp, but predictions stay on their devices until they are moved to the CPU.
class BalancedDataParallelStrategy final : public Strategy {
 public:
  BalancedDataParallelStrategy();
  [[nodiscard]] std::string name() const override { return "dp_balanced"; }
};

}  // namespace levin
