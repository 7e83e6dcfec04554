#include "levin/trainer/run/use_device.h"

#include "levin/core/process/console.h"
#include "levin/core/random.h"
#include "levin/libtorch/blas.h"
#include "levin/strategies/accelerator.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/run.h"

namespace levin {

namespace {

void warn_of_reference_blas() {
  const std::string path = reference_blas();
  if (path.empty()) return;
  Console::instance().warn("LibTorch multiplies matrices with the reference BLAS (" + path +
                           "), several times slower than OpenBLAS. On Debian: apt install libopenblas0-pthread");
}

}  // namespace

void use_device(Run& run) {
  const auto type = accelerator_type(run.plan.device);
  if (!type) {
    if (run.strategy->ranks().rank() == 0) warn_of_reference_blas();
    return;
  }
  const auto local_rank = static_cast<size_t>(run.strategy->ranks().world().local_rank);
  const at::Device device(*type, static_cast<c10::DeviceIndex>(run.plan.device_indices.at(local_rank)));
  use_accelerator(device);
  if (seed_is_set()) seed_accelerators(default_seed());
  run.strategy->placement().use_device(device);
}

}  // namespace levin
