#include "levin/libtorch/tcp_store.h"

#if __has_include(<torch/csrc/distributed/c10d/TCPStoreBackend.hpp>)
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>
#endif

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <system_error>

#include "levin/core/options/error.h"
#include "levin/core/process/start_thread.h"
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

// A client of c10d takes a socket that it cannot open for a server that is not there yet, and tries until its timeout.
void check_can_open_sockets() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket >= 0) {
    ::close(socket);
    return;
  }
  if (errno != EMFILE && errno != ENFILE) return;  // c10d may use another family
  const std::string cause = std::strerror(errno);
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  throw Error("cannot open a socket to connect to the other ranks: " + cause + ". This process may have " +
              std::to_string(limit.rlim_cur) + " files open: raise the limit (ulimit -n).");
}

}  // namespace

c10::intrusive_ptr<c10d::TCPStore> make_tcp_store(const std::string& host, c10d::TCPStoreOptions options) {
  options.useLibUV = LEVIN_TORCH_AT_LEAST(2, 8) || !options.masterListenFd;
  if (!options.isServer) check_can_open_sockets();
  try {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) throw;
    throw refused_thread("connects ranks", error);
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
