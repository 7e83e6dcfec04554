#include "levin/strategies/launch/connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

namespace levin {

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
    if (made < 0) continue;
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
