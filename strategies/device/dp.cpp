#include "levin/strategies/device/dp.h"

#include <utility>

#include "levin/core/error.h"

namespace levin {

void SeveralDevices::use_slots(std::vector<DeviceSlot> slots) {
  if (slots.empty()) throw ConfigError(name() + ": it was given no device. Give at least one.");
  slots_ = std::move(slots);
}

}  // namespace levin
