// Who started this process, and as which rank: read from the environment that torchrun, SLURM, LSF, MPI and Kubeflow
// leave, in Lightning's order of precedence (torchrun, SLURM, LSF, MPI, then Kubeflow and plain variables). No process
// is started here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "levin/core/variables.h"
#include "levin/strategies/world.h"

namespace levin {

/// The world that another program has made; unset: none has, the ranks are still to be started. Throws ConfigError
/// naming the variable and its value where they are not numbers or contradict each other.
[[nodiscard]] std::optional<World> find_world(const Variables& variables);

/// The whole number >= 0 that the variable `name` holds as `text`. Throws ConfigError naming both if it is none.
[[nodiscard]] int64_t environment_number(const std::string& text, const std::string& name);

/// The first host of SLURM's notation: "node[5-9,12],gpu1" -> "node5". Throws ConfigError if it cannot be read.
[[nodiscard]] std::string first_host(const std::string& nodelist);

/// Holds who set it, for messages.
inline constexpr const char* kInitMethodVariable = "LEVIN_INIT_METHOD";

}  // namespace levin
