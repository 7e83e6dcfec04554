// The devices that a rank computes on, and how its module is moved to them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/strategies/strategy_part.h"

namespace torch::nn {
class Module;
}

namespace levin {

/// One of the devices that this process computes on. A GPU is identified by its device; LibTorch's CPU device has no
/// index, so the slot distinguishes several logical CPU devices, which share memory and cores, and replace GPUs in
/// tests.
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

/// Returns the slot that the calling thread computes for; null outside of any SlotScope.
[[nodiscard]] const DeviceSlot* current_slot();

/// A scope in which the calling thread computes for a slot: sets current_slot() and LibTorch's current device.
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
  std::shared_ptr<Guard> guard_;  // only where the device has an index
};

/// Returns `tensor` on the slot's device, as part of the graph; the tensor itself if it is already there.
[[nodiscard]] at::Tensor move_to(const at::Tensor& tensor, const DeviceSlot& slot);

class DeviceCopier;

/// The devices of this rank: by default one device, the CPU until use_device() is called.
class DevicePlacement : public StrategyPart {
 public:
  /// Returns the device of this rank's module and batches.
  [[nodiscard]] virtual at::Device device() const { return device_; }
  /// Makes this rank use `device`; after RankCollectives::join(), before anything else. Throws ConfigError if device()
  /// is overridden and has a different type.
  virtual void use_device(at::Device device);
  /// Returns a copier that prefetches batches to the device, one ahead; null: each batch is copied when it is needed.
  [[nodiscard]] virtual std::shared_ptr<DeviceCopier> make_copier();

  /// Returns whether one process computes on several devices: the trainer then calls use_slots().
  [[nodiscard]] virtual bool takes_several_devices() const { return false; }
  /// Sets the devices of this process, at least one. Called once, before anything else.
  virtual void use_slots(std::vector<DeviceSlot> /*slots*/) {}
  /// Returns the slots whose replicas of the module each compute a part of every batch; fewer than two: the module
  /// computes the batch in one piece.
  [[nodiscard]] virtual std::vector<DeviceSlot> replica_slots() const { return {}; }
  /// Returns whether the replicas' outputs (predictions) are gathered on device(), or moved to the CPU from their own
  /// devices.
  [[nodiscard]] virtual bool gathers_outputs() const { return true; }

  /// Returns an object that exists while the module's layers are made, converted and placed, but not while weights are
  /// loaded: it controls how this thread allocates tensors. Null: LibTorch's default. `training`: as Strategy::set_up()
  /// will be called. After RankCollectives::join().
  [[nodiscard]] virtual std::shared_ptr<void> model_sharded_context(bool /*training*/) { return nullptr; }
  /// Moves the module to its devices. Called after its layers are made and before its optimizers are. Every rank calls
  /// it.
  virtual void place(torch::nn::Module& module);

 private:
  at::Device device_ = at::kCPU;
};

/// Moves the module's buffers to `device`, and leaves its parameters where they are.
void place_buffers(torch::nn::Module& module, at::Device device);

/// Does what module.to(device) does, also to and from a backend outside LibTorch (PrivateUse1).
void move_module(torch::nn::Module& module, at::Device device);

}  // namespace levin
