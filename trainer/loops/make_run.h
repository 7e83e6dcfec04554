// What a Trainer consists of from its options: strategy, ranks, device, loggers, callbacks.
#pragma once

#include <memory>

#include "levin/trainer/run/run.h"

namespace levin {

/// Starts this process's ranks where there are to be several (start_ranks). Throws ConfigError naming every option that
/// cannot be had.
[[nodiscard]] std::unique_ptr<Run> make_run(Trainer& owner, TrainerOptions given);

}  // namespace levin
