// The address at which other ranks reach this machine.
#pragma once

#include <string>

#include "levin/strategies/world.h"

namespace levin {

/// Loopback where all ranks are on one machine, so that nobody else can reach them. Else the address of the interface
/// that GLOO_SOCKET_IFNAME names, as for PyTorch, or the one from which packets go to rank 0. (The machine's own name
/// is no guide: many systems give it a loopback address.) Throws ConfigError for an interface that is not there; "" if
/// nothing is known.
[[nodiscard]] std::string own_address(const World& world);

}  // namespace levin
