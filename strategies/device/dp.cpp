#include "levin/strategies/device/dp.h"

#include <utility>

#include "levin/core/error.h"

namespace levin {

void MultiDeviceStrategy::use_slots(std::vector<DeviceSlot> slots) {
  if (slots.empty()) throw ConfigError(name() + ": no device was given. Give at least one.");
  slots_ = std::move(slots);
  if (slots_.size() > 1) gradient_.use_device_threads();
}

}  // namespace levin
