// Where ranks meet: rank 0's store listens at the address that it was given and nowhere else. With a shared secret the
// store itself listens on the loopback; in front of it, at that address, stands a gate that lets in who knows the
// secret, and the other ranks come through a tunnel of their own.
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
  bool is_elsewhere = false;                    // the address that the others were given leads to another machine
  bool is_proved = false;                       // who answers there knows the secret
};

/// Opens rank 0's socket (and gate), or another rank's tunnel; both stay to the end of the process. Throws Error where
/// the address cannot be had, or the secrets differ.
[[nodiscard]] StoreAddress open_store_address(const World& world, std::chrono::milliseconds timeout);

/// How any rank but the store's own process reaches the store: another rank's side of the above.
[[nodiscard]] StoreAddress way_to_store(const World& world, std::chrono::milliseconds timeout);

}  // namespace levin
