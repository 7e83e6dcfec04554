#include "levin/trainer/run/use_device.h"

#include "levin/core/random.h"
#include "levin/strategies/accelerator.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/run.h"

namespace levin {

void use_device(Run& run) {
  const auto type = accelerator_type(run.plan.device);
  if (!type) return;
  const auto local_rank = static_cast<size_t>(run.strategy->ranks().world().local_rank);
  const at::Device device(*type, static_cast<c10::DeviceIndex>(run.plan.device_indices.at(local_rank)));
  use_accelerator(device);
  if (seed_is_set()) seed_accelerators(default_seed());
  run.strategy->placement().use_device(device);
}

}  // namespace levin
