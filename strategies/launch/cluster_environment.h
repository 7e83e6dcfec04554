// Which launcher started this process, and as which rank: read from the environment variables of torchrun, SLURM, LSF,
// MPI and Kubeflow, in Lightning's order of precedence (torchrun, SLURM, LSF, MPI, then Kubeflow and plain variables).
// No process is started here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/process/this_process.h"
#include "levin/strategies/mesh.h"

namespace levin {

/// The world that a launcher has set up; unset: none has, and the ranks are still to be started. Throws ConfigError
/// naming the variable and its value if values are not numbers or contradict each other.
[[nodiscard]] std::optional<World> find_world(const Variables& variables);

/// The value `text` of the variable `name` as a whole number >= 0. Throws ConfigError naming both if it is not one.
[[nodiscard]] int64_t environment_number(const std::string& text, const std::string& name);

/// The first host of SLURM's notation: "node[5-9,12],gpu1" -> "node5". Throws ConfigError if it cannot be read.
[[nodiscard]] std::string first_host(const std::string& nodelist);

/// Its value is the source of the other variables, for messages.
inline constexpr const char* kInitMethodVariable = "LEVIN_INIT_METHOD";

/// This machine's name and an ID that distinguishes it from others of the same name. Containers with different names
/// count as separate machines: they may not see each other's GPUs.
[[nodiscard]] std::string this_machine();

/// For ranks whose launcher did not set local ranks: `own` with the local rank and size, the node rank and the number
/// of nodes, derived from the ranks' machines, which are given in rank order. Nodes are numbered by their lowest ranks.
[[nodiscard]] World place_among(World own, const std::vector<std::string>& machines);

}  // namespace levin
