// Creates the parts of a Trainer from its options: strategy, ranks, device, loggers, callbacks.
#pragma once

#include <memory>

#include "levin/trainer/run/run.h"

namespace levin {

/// Starts the ranks if there are several (start_ranks). Throws ConfigError naming every option that is not possible.
[[nodiscard]] std::unique_ptr<Run> make_run(Trainer& owner, TrainerOptions given);

}  // namespace levin
