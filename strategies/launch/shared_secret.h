// A secret shared by the ranks on several machines. Both sides of a connection prove to each other that they have it,
// by HMAC-SHA-256 of random numbers, so that the secret itself is never sent and messages cannot be replayed.
#pragma once

#include <chrono>
#include <string>

#include "levin/core/variables.h"

namespace levin {

/// LEVIN_SECRET, or the contents of the file that LEVIN_SECRET_FILE names (without line ends after it); "": none is
/// set. Throws ConfigError if the file cannot be read or the secret has fewer than 16 characters.
[[nodiscard]] std::string shared_secret(const Variables& variables);

/// Rank 0's side of a new connection: "" once the other side has proved that it has the secret, otherwise what it did
/// instead: "closed the connection".
[[nodiscard]] std::string verify_secret(int connection, const std::string& secret, std::chrono::milliseconds timeout);

/// The other side: "" once both have proved it, otherwise the problem.
[[nodiscard]] std::string prove_secret(int connection, const std::string& secret, std::chrono::milliseconds timeout);

}  // namespace levin
