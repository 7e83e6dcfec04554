#include "levin/trainer/run/use_device.h"

#include "levin/core/gpu.h"
#include "levin/core/seed.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/run.h"

namespace levin {

void use_device(Run& run) {
  if (run.plan.device != "cuda") return;
  Gpu& gpu = open_gpu();
  if (seed_is_set()) seed_gpus(default_seed());
  const auto local_rank = static_cast<size_t>(run.strategy->world().local_rank);
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(run.plan.gpus.at(local_rank)));
  gpu.use(device);
  run.strategy->use_device(device);
}

}  // namespace levin
