#include "levin/libtorch/tcp_store.h"

#if __has_include(<torch/csrc/distributed/c10d/TCPStoreBackend.hpp>)
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>
#endif

#include <cstdint>
#include <exception>

#include "levin/libtorch/version.h"

namespace levin {

namespace {

constexpr uint8_t kValidate = 0;
constexpr uint32_t kMagic = 0x3C85F7CE;
constexpr uint8_t kPingQuery = 13;

#if __has_include(<torch/csrc/distributed/c10d/TCPStoreBackend.hpp>)
static_assert(static_cast<uint8_t>(c10d::detail::QueryType::VALIDATE) == kValidate &&
                  c10d::detail::validationMagicNumber == kMagic &&
                  static_cast<uint8_t>(c10d::detail::QueryType::PING) == kPingQuery,
              "This LibTorch has changed TCPStore's protocol: adapt libtorch/tcp_store.cpp.");
#endif

}  // namespace

c10::intrusive_ptr<c10d::TCPStore> make_tcp_store(const std::string& host, c10d::TCPStoreOptions options) {
  options.useLibUV = LEVIN_TORCH_AT_LEAST(2, 8) || !options.masterListenFd;
  try {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  } catch (const std::exception& error) {
    // Thrown before a socket is opened. c10d does not export its function that tells.
    if (!options.useLibUV || std::string(error.what()).find("without libuv support") == std::string::npos) throw;
    options.useLibUV = false;
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  }
}

std::string store_ping(std::string_view number) {
  std::string text(1, static_cast<char>(kValidate));
  text.append(reinterpret_cast<const char*>(&kMagic), sizeof kMagic);
  text += static_cast<char>(kPingQuery);
  return text.append(number);
}

}  // namespace levin
