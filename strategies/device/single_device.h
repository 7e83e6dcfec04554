// One process on one device.
#pragma once

#include <memory>
#include <string>

#include "levin/strategies/strategy.h"

namespace levin {

/// The default parts, with a recorder.
class SingleDeviceStrategy final : public Strategy {
 public:
  explicit SingleDeviceStrategy(at::Device device = at::kCPU) {
    placement().use_device(device);
    use(std::make_unique<DeviceStepRecorder>());
  }
  [[nodiscard]] std::string name() const override { return "single_device"; }
};

}  // namespace levin
