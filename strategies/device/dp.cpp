#include "levin/strategies/device/dp.h"

#include <utility>

#include "levin/core/options/error.h"

namespace levin {

namespace {

class ReplicaPlacement final : public SlotPlacement {
 public:
  explicit ReplicaPlacement(bool gathers) : gathers_(gathers) {}
  [[nodiscard]] std::vector<DeviceSlot> replica_slots() const override { return slots(); }
  [[nodiscard]] bool gathers_outputs() const override { return gathers_; }

 private:
  bool gathers_;
};

}  // namespace

void SlotPlacement::use_slots(std::vector<DeviceSlot> slots) {
  if (slots.empty()) throw ConfigError("TrainerOptions.devices: no device was given. Give at least one.");
  slots_ = std::move(slots);
  if (slots_.size() > 1) parts().gradients().local().use_device_threads();
}

DataParallelStrategy::DataParallelStrategy() {
  use(std::make_unique<ReplicaPlacement>(true));
}

BalancedDataParallelStrategy::BalancedDataParallelStrategy() {
  use(std::make_unique<ReplicaPlacement>(false));
}

}  // namespace levin
