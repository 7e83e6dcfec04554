// Checks whether the program that listens at an address is the ranks' rendezvous store. LibTorch's own client waits
// there without a message, whatever program listens.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace levin {

/// Waits until a store responds there, for `timeout` at most. Throws Error naming the address and what was found
/// instead: at once if a program sends anything else, after half a minute if one sends nothing at all.
void await_store(const std::string& host, int64_t port, std::chrono::milliseconds timeout);

}  // namespace levin
