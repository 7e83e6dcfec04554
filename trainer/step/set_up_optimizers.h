// What configure_optimizers returned becomes the run's optimizers and schedulers.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// Asks the module, and refuses what the plan cannot do with its answer: throws ConfigError naming option and value.
void set_up_optimizers(Run& run);

}  // namespace levin
