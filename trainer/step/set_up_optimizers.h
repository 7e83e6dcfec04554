// Sets up the run's optimizers and schedulers from the result of configure_optimizers.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// Calls configure_optimizers. Throws ConfigError, naming option and value, if its result is not possible with the
/// plan.
void set_up_optimizers(Run& run);

}  // namespace levin
