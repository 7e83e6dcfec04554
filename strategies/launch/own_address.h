// The address at which other ranks reach this machine.
#pragma once

#include <string>

#include "levin/strategies/mesh.h"

namespace levin {

/// Loopback if all ranks are on one machine, so that no other machine can reach them. Otherwise the address of the
/// interface that GLOO_SOCKET_IFNAME names, as in PyTorch, or the source address of packets to rank 0. (The machine's
/// own name is unreliable: on many systems it resolves to loopback.) Throws ConfigError for an interface that does not
/// exist; "" if no address is found.
[[nodiscard]] std::string own_address(const World& world);

}  // namespace levin
