// Data parallel within one process: replicas of the module on several devices each compute a share of every batch, and
// their gradients are added to the module's own. The batch size is the loader's: it is not multiplied by the devices.
//
//   levin::Trainer trainer({.devices = std::vector<std::string>{"cpu", "cpu"}, .strategy = "dp"});
//   trainer: {accelerator: gpu, devices: 4, strategy: dp}
//
// ddp does the same with one process per device and is faster: here the weights are copied to all devices in each step.
#pragma once

#include <string>
#include <vector>

#include "levin/strategies/strategy.h"

namespace levin {

/// The base of strategies that run one process on several devices.
class MultiDeviceStrategy : public Strategy {
 public:
  [[nodiscard]] at::Device device() const override { return slots_.front().device; }
  [[nodiscard]] int64_t rank() const override { return 0; }
  [[nodiscard]] int64_t world_size() const override { return 1; }
  [[nodiscard]] bool takes_several_devices() const override { return true; }
  void use_slots(std::vector<DeviceSlot> slots) override;
  [[nodiscard]] RankNotes backward(const at::Tensor& loss, bool sync, const RankNotes& own) override {
    gradient_.backward(loss);
    return sync ? own : RankNotes();
  }
  [[nodiscard]] at::Tensor reduce(const at::Tensor& value, ReduceOp /*op*/) override { return value; }
  [[nodiscard]] bool any(bool value) override { return value; }
  void barrier() override {}

 protected:
  [[nodiscard]] const std::vector<DeviceSlot>& slots() const { return slots_; }

 private:
  std::vector<DeviceSlot> slots_ = cpu_slots(1);
};

/// The loss of a batch is the mean of its shares' losses, weighted by their samples; predictions are gathered on the
/// first device.
class DataParallelStrategy : public MultiDeviceStrategy {
 public:
  [[nodiscard]] std::string name() const override { return "dp"; }
  [[nodiscard]] std::vector<DeviceSlot> replica_slots() const override { return slots(); }
};

/// The balanced form: predictions also stay on their devices until they are moved to the CPU.
class BalancedDataParallelStrategy final : public DataParallelStrategy {
 public:
  [[nodiscard]] std::string name() const override { return "dp_balanced"; }
  [[nodiscard]] bool gathers_outputs() const override { return false; }
};

}  // namespace levin
