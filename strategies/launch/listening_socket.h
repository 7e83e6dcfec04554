// Sockets between ranks.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

/// A socket that listens at only one address of this machine.
class ListeningSocket {
 public:
  /// `address`: a host name or numeric address, IPv4 or IPv6; of several, the first IPv4 one. Port 0: chosen by the
  /// kernel. Throws Error naming both on failure, with errno in `refusal` if that is not null.
  ListeningSocket(const std::string& address, int64_t port, int* refusal = nullptr);
  ~ListeningSocket();
  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] int64_t port() const { return port_; }
  /// Releases ownership of the descriptor to the caller.
  [[nodiscard]] int release();

 private:
  int descriptor_ = -1;
  int64_t port_ = 0;
};

/// The numeric address that a name resolves to on this machine, IPv4 first: "10.0.0.1". Empty if it does not resolve.
[[nodiscard]] std::string first_address(const std::string& name);

/// 127.0.0.0/8 or ::1.
[[nodiscard]] bool is_loopback_address(const std::string& numbers);

/// A TCP connection to another process, for any protocol.
class Connection {
 public:
  /// Takes ownership of the descriptor; -1: none.
  explicit Connection(int descriptor = -1);
  ~Connection();
  Connection(Connection&& other) noexcept;
  Connection& operator=(Connection&& other) noexcept;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  [[nodiscard]] int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

/// Connects to `host` within 10 seconds; empty, with errno set, on failure.
[[nodiscard]] Connection connect_to(const std::string& host, int64_t port);

}  // namespace levin
