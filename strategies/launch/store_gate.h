// The ranks' rendezvous: rank 0's store listens only at the address that it was given. With a shared secret the store
// itself listens on loopback; at that address a gate accepts connections that prove the secret, and each of the other
// ranks connects through a tunnel.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "levin/core/process/this_process.h"
#include "levin/strategies/mesh.h"

namespace levin {

struct StoreAddress {
  std::string host;
  int64_t port = 0;
  std::optional<int> listening = std::nullopt;  // rank 0's socket for the store, bound and listening
  bool is_elsewhere = false;                    // the address given to the other ranks is on a different machine
  bool is_proved = false;                       // the server at this address has proved that it has the secret
};

/// Opens rank 0's socket (and gate), or another rank's tunnel; both stay open to the end of the process. Throws Error
/// if the address cannot be used, or the secrets differ.
[[nodiscard]] StoreAddress open_store_address(const World& world, std::chrono::milliseconds timeout);

/// The address at which a process other than the store's reaches the store: the other ranks' side of the above.
[[nodiscard]] StoreAddress reach_store(const World& world, std::chrono::milliseconds timeout);

// A secret shared by the ranks on several machines. Both sides of a connection prove to each other that they have it,
// by HMAC-SHA-256 of random numbers, so that the secret itself is never sent and messages cannot be replayed.

/// LEVIN_SECRET, or the contents of the file that LEVIN_SECRET_FILE names (without line ends after it); "": none is
/// set. Throws ConfigError if the file cannot be read or the secret has fewer than 16 characters.
[[nodiscard]] std::string shared_secret(const Variables& variables);

/// Rank 0's side of a new connection: "" once the other side has proved that it has the secret, otherwise what it did
/// instead: "closed the connection".
[[nodiscard]] std::string verify_secret(int connection, const std::string& secret, std::chrono::milliseconds timeout);

/// The other side: "" once both have proved it, otherwise the problem.
[[nodiscard]] std::string prove_secret(int connection, const std::string& secret, std::chrono::milliseconds timeout);

}  // namespace levin
