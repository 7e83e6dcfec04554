#include "levin/libtorch/tcp_store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

namespace levin::tcp_store_test {
namespace {

std::string answer_to(const std::string& text, uint16_t port) {
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::send(connection, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  pollfd waiting = {connection, POLLIN, 0};
  std::array<char, 16> buffer{};
  const ssize_t got = ::poll(&waiting, 1, 10000) > 0 ? ::recv(connection, buffer.data(), buffer.size(), 0) : -1;
  ::close(connection);
  return got < 0 ? "no answer" : std::string(buffer.data(), static_cast<size_t>(got));
}

c10d::TCPStoreOptions server_options() {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  return options;
}

TEST(TcpStore, AnswersAPingWithItsNumber) {
  const auto store = make_tcp_store("127.0.0.1", server_options());
  EXPECT_EQ(answer_to(store_ping("\n\n\n\n"), store->getPort()), "\n\n\n\n");
  EXPECT_EQ(answer_to(store_ping("1234"), store->getPort()), "1234");
}

TEST(TcpStore, TakesOverASocketThatListens) {
  const int listening = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listening, reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(listening, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ASSERT_EQ(::listen(listening, 8), 0);
  c10d::TCPStoreOptions options = server_options();
  options.port = ntohs(address.sin_port);
  options.masterListenFd = listening;
  const auto store = make_tcp_store("127.0.0.1", options);
  EXPECT_EQ(store->getPort(), options.port);
  EXPECT_EQ(answer_to(store_ping("1234"), options.port), "1234");
  store->set("key", std::vector<uint8_t>{1, 2});
  EXPECT_EQ(store->get("key"), (std::vector<uint8_t>{1, 2}));
}

}  // namespace
}  // namespace levin::tcp_store_test
