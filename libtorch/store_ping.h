// The first bytes of a connection to c10d's TCPStore. LibTorch 2.15 no longer declares them, but speaks the same
// protocol. Checked with LibTorch 2.6, 2.7, 2.9, 2.11, 2.13 and 2.15. Internal.
#pragma once

#include <string>
#include <string_view>

namespace levin {

/// Returns the bytes that a client sends to ask a store for an answer: the store sends `number`, of four bytes, back.
[[nodiscard]] std::string store_ping(std::string_view number);

}  // namespace levin
