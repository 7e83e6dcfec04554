// The ranks' rendezvous: rank 0's store listens only at the address that it was given. With a shared secret the store
// itself listens on loopback; at that address a gate accepts connections that prove the secret, and each of the other
// ranks connects through a tunnel.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "levin/strategies/world.h"

namespace levin {

struct StoreAddress {
  std::string host;
  int64_t port = 0;
  std::optional<int> listening = std::nullopt;  // rank 0's socket for the store, bound and listening
  bool is_elsewhere = false;                    // the address that the others were given is another machine's
  bool is_proved = false;                       // the server at this address has proved that it has the secret
};

/// Opens rank 0's socket (and gate), or another rank's tunnel; both stay open to the end of the process. Throws Error
/// if the address cannot be used, or the secrets differ.
[[nodiscard]] StoreAddress open_store_address(const World& world, std::chrono::milliseconds timeout);

/// The address at which a process other than the store's reaches the store: the other ranks' side of the above.
[[nodiscard]] StoreAddress reach_store(const World& world, std::chrono::milliseconds timeout);

}  // namespace levin
