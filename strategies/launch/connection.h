// A TCP connection to another process, for any protocol.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

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
