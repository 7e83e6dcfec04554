#include "levin/strategies/launch/own_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/strategies/launch/listening_socket.h"

namespace levin {

namespace {

// Numeric: "10.0.0.1".
std::string address_text(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> host = {};
  const int error = ::getnameinfo(address, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? host.data() : "";
}

socklen_t size_of(const sockaddr* address) {
  return address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

// The first address of the interface `name`; if that is empty, of any interface that is up, except loopback. IPv4
// before IPv6.
std::string interface_address(const std::string& name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      const bool usable = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
      if (name.empty() ? usable : name == entry->ifa_name)
        return address_text(entry->ifa_addr, size_of(entry->ifa_addr));
    }
  }
  return "";
}

// The source address of packets to `host`: connecting a UDP socket sends nothing, but assigns its address.
std::string address_towards(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &hints, &list) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    const int descriptor = ::socket(entry->ai_family, entry->ai_socktype | SOCK_CLOEXEC, entry->ai_protocol);
    if (descriptor < 0) continue;
    sockaddr_storage own = {};
    socklen_t size = sizeof own;
    auto* plain = reinterpret_cast<sockaddr*>(&own);
    const bool known =
        ::connect(descriptor, entry->ai_addr, entry->ai_addrlen) == 0 && ::getsockname(descriptor, plain, &size) == 0;
    ::close(descriptor);
    if (known) return address_text(plain, size);
  }
  return "";
}

}  // namespace

std::string own_address(const World& world) {
  if (world.num_nodes == 1) return "127.0.0.1";
  if (const char* name = std::getenv("GLOO_SOCKET_IFNAME"); name != nullptr && *name != '\0') {
    const std::string address = interface_address(name);
    if (!address.empty()) return address;
    throw ConfigError(std::string("environment: GLOO_SOCKET_IFNAME is \"") + name +
                      "\", but this machine has no interface of that name with an address. See \"ip address\".");
  }
  const std::string address = address_towards(world.master_address);
  const bool meant = is_loopback_address(world.master_address) || world.master_address == "localhost";
  if (!is_loopback_address(address) || meant) return address;
  // This is rank 0's machine, and its own name resolves to loopback here, but not on the others.
  const std::string other = interface_address("");
  return other.empty() ? address : other;
}

}  // namespace levin
