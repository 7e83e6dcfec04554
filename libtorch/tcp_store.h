// What differs between versions of c10d's TCPStore. LibTorch 2.15 no longer declares the first bytes of a connection, but
// speaks the same protocol. Checked with LibTorch 2.6, 2.7, 2.9, 2.11, 2.13 and 2.15. Internal.
#pragma once

#include <string>
#include <string_view>

#include "levin/libtorch/version.h"

namespace levin {

/// Whether a store on libuv accepts a socket that listens already; older ones need TCPStoreOptions::useLibUV to be
/// false for it.
inline constexpr bool kLibuvTakesSockets = LEVIN_TORCH_AT_LEAST(2, 8);

/// Returns the bytes that a client sends to ask a store for an answer: the store sends `number`, of four bytes, back.
[[nodiscard]] std::string store_ping(std::string_view number);

}  // namespace levin
