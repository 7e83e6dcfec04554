// What ranks on several machines know and a stranger does not. Both sides of a connection prove it to each other by
// HMAC-SHA-256 of random numbers, so that the secret itself is never sent and nothing can be sent a second time.
#pragma once

#include <chrono>
#include <string>

#include "levin/core/variables.h"

namespace levin {

/// LEVIN_SECRET, or what the file that LEVIN_SECRET_FILE names holds (without the line's end); "": none is set. Throws
/// ConfigError where the file cannot be read or the secret has fewer than 16 characters.
[[nodiscard]] std::string shared_secret(const Variables& variables);

/// Rank 0's side of a new connection: "" once the other has proved that it knows the secret, else what it did instead,
/// "said nothing for 10 s".
[[nodiscard]] std::string check_visitor(int connection, const std::string& secret, std::chrono::milliseconds timeout);

/// The other side: "" once both have proved it, else what is wrong.
[[nodiscard]] std::string show_secret(int connection, const std::string& secret, std::chrono::milliseconds timeout);

}  // namespace levin
