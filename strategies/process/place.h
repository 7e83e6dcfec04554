// Where ranks are that nobody has numbered by their machines: those on one machine count themselves.
#pragma once

#include <string>
#include <vector>

#include "levin/strategies/world.h"

namespace levin {

/// This machine's name with what tells it from another one of the same name. Containers with a name of their own are
/// machines of their own: they need not see each other's GPUs.
[[nodiscard]] std::string this_machine();

/// `own` with the local rank and size, the node's number and the number of nodes, which follow from the ranks'
/// machines, rank by rank. Nodes are numbered by their lowest ranks.
[[nodiscard]] World place_among(World own, const std::vector<std::string>& machines);

}  // namespace levin
