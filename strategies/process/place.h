// The places of ranks whose launcher did not set local ranks: they are derived from the ranks' machines.
#pragma once

#include <string>
#include <vector>

#include "levin/strategies/world.h"

namespace levin {

/// This machine's name and an ID that distinguishes it from others of the same name. Containers with different names
/// count as separate machines: they may not see each other's GPUs.
[[nodiscard]] std::string this_machine();

/// `own` with the local rank and size, the node rank and the number of nodes, derived from the ranks' machines, which
/// are given in rank order. Nodes are numbered by their lowest ranks.
[[nodiscard]] World place_among(World own, const std::vector<std::string>& machines);

}  // namespace levin
