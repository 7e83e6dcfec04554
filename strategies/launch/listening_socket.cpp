#include "levin/strategies/launch/listening_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "levin/core/options/error.h"

namespace levin {

namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses addresses_of(const std::string& name, int64_t port, std::string& problem) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) problem = ::gai_strerror(error);
  return Addresses(error == 0 ? list : nullptr, [](addrinfo* all) {
    if (all != nullptr) ::freeaddrinfo(all);
  });
}

// A socket that listens at `address`; -1, with errno set, on failure.
int listen_at(const addrinfo& address) {
  const int made = ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol);
  if (made < 0) return -1;
  const int yes = 1;
  const int no = 0;
  ::setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);  // a previous run may have just ended
  if (address.ai_family == AF_INET6) ::setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (::bind(made, address.ai_addr, address.ai_addrlen) == 0 && ::listen(made, 1024) == 0) return made;
  const int saved = errno;
  ::close(made);
  errno = saved;
  return -1;
}

int64_t port_of(int descriptor) {
  sockaddr_storage own = {};
  socklen_t size = sizeof own;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) != 0) return 0;
  if (own.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&own)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&own)->sin_port);
}

}  // namespace

ListeningSocket::ListeningSocket(const std::string& address, int64_t port, int* refusal) {
  std::string problem;
  const Addresses all = addresses_of(address, port, problem);
  int error = 0;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* one = all.get(); one != nullptr && descriptor_ < 0; one = one->ai_next) {
      if (one->ai_family != family) continue;
      descriptor_ = listen_at(*one);
      if (descriptor_ < 0) error = errno;
    }
  }
  if (refusal != nullptr) *refusal = error;
  if (descriptor_ < 0) {
    throw Error("rank 0 cannot listen at " + address + ", port " + std::to_string(port) + ": " +
                (error != 0 ? std::string(std::strerror(error)) : problem) + "." +
                (error == EADDRINUSE ? " Another program listens there: another run, or a second process with "
                                       "rank 0. Set MASTER_PORT to choose another port."
                                     : ""));
  }
  port_ = port_of(descriptor_);
}

ListeningSocket::~ListeningSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), port_(other.port_) {}

int ListeningSocket::release() {
  return std::exchange(descriptor_, -1);
}

std::string first_address(const std::string& name) {
  std::string problem;
  const Addresses all = addresses_of(name, 0, problem);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
      std::array<char, NI_MAXHOST> text = {};
      if (one->ai_family == family &&
          ::getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0) {
        return text.data();
      }
    }
  }
  return "";
}

bool is_loopback_address(const std::string& numbers) {
  return numbers.starts_with("127.") || numbers == "::1";
}

Connection::Connection(int descriptor) : descriptor_(descriptor) {
  const int yes = 1;
  if (descriptor >= 0) ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (descriptor >= 0) ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
}

Connection::~Connection() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Connection::Connection(Connection&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Connection& Connection::operator=(Connection&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Connection connect_to(const std::string& host, int64_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) {
    errno = EHOSTUNREACH;
    return Connection();
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  int error = EHOSTUNREACH;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    const int made = ::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
    if (made < 0) {
      error = errno;
      continue;
    }
    Connection connection(made);
    const timeval most = {10, 0};
    ::setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);  // for connect
    if (::connect(made, one->ai_addr, one->ai_addrlen) == 0) {
      const timeval none = {0, 0};
      ::setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
      return connection;
    }
    error = errno;
  }
  errno = error;
  return Connection();
}

}  // namespace levin
