// A socket that listens at one address of this machine, and not at all of them.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

class ListeningSocket {
 public:
  /// `address`: a name or numbers, IPv4 or IPv6; of several the first IPv4 one. Port 0: one that the kernel gives.
  /// Throws Error naming both where it cannot be had, with errno's number in `refusal` if that is not null.
  ListeningSocket(const std::string& address, int64_t port, int* refusal = nullptr);
  ~ListeningSocket();
  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] int64_t port() const { return port_; }
  /// The caller closes it.
  [[nodiscard]] int release();

 private:
  int descriptor_ = -1;
  int64_t port_ = 0;
};

/// The numbers that a name stands for here, IPv4 first: "10.0.0.1". Empty if nobody knows it.
[[nodiscard]] std::string first_address(const std::string& name);

/// "127.0.0.1" and its like, and "::1".
[[nodiscard]] bool is_loopback_address(const std::string& numbers);

}  // namespace levin
