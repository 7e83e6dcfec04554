// Whether what answers at an address is the store where ranks meet. The library's own client waits there in silence,
// whoever listens.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace levin {

/// Waits until a store answers there, for `timeout` at most. Throws Error naming the address and what is there instead:
/// at once where a program says something else, after half a minute where one says nothing at all.
void await_store(const std::string& host, int64_t port, std::chrono::milliseconds timeout);

}  // namespace levin
