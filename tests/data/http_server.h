// A real HTTP/1.1 server on a free port of 127.0.0.1, on its own thread: each request gets the next of the given
// answers (the last one again and again), each on a connection of its own, which is then closed.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace levin::test {

class HttpServer {
 public:
  /// Sends answers unchanged.
  explicit HttpServer(std::vector<std::string> answers) : answers_(std::move(answers)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_, generic, size) == 0 && ::listen(listener_, 8) == 0 &&
        ::getsockname(listener_, generic, &size) == 0) {
      port_ = ntohs(address.sin_port);
    }
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    ::shutdown(listener_, SHUT_RDWR);  // wakes accept()
    thread_.join();
    ::close(listener_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/"; }
  [[nodiscard]] int requests() const { return requests_; }

  static std::string answer(const std::string& body, const std::string& status = "200 OK") {
    return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\nConnection: close\r\n\r\n" + body;
  }
  /// The connection breaks in the middle of the body.
  static std::string cut(const std::string& body) {
    const std::string whole = answer(body);
    return whole.substr(0, whole.size() - body.size() / 2);
  }

 private:
  void serve() {
    while (true) {
      const int client = ::accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      const timeval limit{5, 0};
      ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      ::setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
      std::string request;
      char buffer[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = ::recv(client, buffer, sizeof buffer, 0);
        if (got <= 0) break;
        request.append(buffer, static_cast<size_t>(got));
      }
      const size_t turn = static_cast<size_t>(requests_++);
      const std::string& text = answers_[turn < answers_.size() ? turn : answers_.size() - 1];
      for (size_t done = 0; done < text.size();) {
        const ssize_t sent = ::send(client, text.data() + done, text.size() - done, MSG_NOSIGNAL);
        if (sent <= 0) break;
        done += static_cast<size_t>(sent);
      }
      ::close(client);
    }
  }

  std::vector<std::string> answers_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> requests_ = 0;
  std::thread thread_;
};

}  // namespace levin::test
