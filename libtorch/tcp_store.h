// What differs between versions of c10d's TCPStore. LibTorch 2.15 no longer declares the first bytes of a connection,
// but speaks the same protocol. Internal.
#pragma once

#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace levin {

/// Returns a store that uses libuv, or c10d's own server: in a LibTorch that was built without libuv, such as Debian's,
/// and, before 2.8, for a socket that listens already (TCPStoreOptions::masterListenFd). Throws c10d's errors.
[[nodiscard]] c10::intrusive_ptr<c10d::TCPStore> make_tcp_store(const std::string& host, c10d::TCPStoreOptions options);

/// Returns the bytes that a client sends to ask a store for an answer: the store sends `number`, of four bytes, back.
[[nodiscard]] std::string store_ping(std::string_view number);

}  // namespace levin
