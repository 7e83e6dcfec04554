#include "levin/strategies/strategy.h"

#include "levin/core/error.h"

namespace levin {

void Strategy::use_device(at::Device device) {
  if (device.type() == this->device().type()) return;
  throw ConfigError("TrainerOptions.strategy: " + name() + " runs on " + this->device().str() + " and not on " +
                    device.str() + ". Use accelerator: cpu, or override use_device in the strategy.");
}

}  // namespace levin
