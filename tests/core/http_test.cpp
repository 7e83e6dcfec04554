#include "levin/core/files/http.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "levin/core/files/url_text.h"
#include "levin/core/options/error.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::http_test {
namespace {

// Answers one connection with this text, and keeps what it was sent.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer, size_t body_bytes = 0) : answer_(std::move(answer)), body_bytes_(body_bytes) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 1) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw Error("no socket");
    url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  ~OneAnswer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }

  std::string received() {
    thread_.join();
    thread_ = std::thread([] {});
    return received_;
  }

  std::string url;

 private:
  void serve() {
    const int peer = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer < 0) return;
    char buffer[4096];
    size_t end = std::string::npos;
    while (end == std::string::npos || received_.size() < end + 4 + body_bytes_) {
      const ssize_t got = ::recv(peer, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      received_.append(buffer, static_cast<size_t>(got));
      end = received_.find("\r\n\r\n");
    }
    (void)!::send(peer, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    if (answer_.empty()) (void)!::recv(peer, buffer, sizeof buffer, 0);  // silent until the client gives up
    ::close(peer);
  }

  std::string answer_;
  size_t body_bytes_;
  int listener_ = -1;
  std::string received_;
  std::thread thread_;
};

HttpRequest to(const std::string& url) {
  HttpRequest request;
  request.url = url;
  request.timeout = Seconds(20);
  return request;
}

TEST(Http, SendsMethodHeadersCredentialsAndBody) {
  OneAnswer server("HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nhere", 7);
  HttpRequest request = to(server.url + "/a?b=c");
  request.method = "POST";
  request.headers = {"Content-Type: application/json"};
  request.body = "{\"a\":1}";
  request.user = "me";
  request.password = "secret";
  const HttpAnswer answer = http_request(request);
  EXPECT_EQ(answer.status, 201) << answer.problem;
  EXPECT_TRUE(answer.is_success());
  EXPECT_EQ(answer.body, "here");
  const std::string received = server.received();
  for (const char* part : {"POST /a?b=c HTTP/1.1\r\n", "Content-Type: application/json\r\n",
                           "Authorization: Basic bWU6c2VjcmV0\r\n", "Content-Length: 7\r\n", "\r\n\r\n{\"a\":1}"})
    EXPECT_NE(received.find(part), std::string::npos) << part << " in " << received;
}

TEST(Http, SendsAFile) {
  const test::TemporaryFolder folder;
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 5000);
  HttpRequest request = to(server.url);
  request.method = "PUT";
  request.token = "token";
  request.body_file = folder.write("data", std::string(5000, 'x'));
  EXPECT_EQ(http_request(request).status, 200);
  const std::string received = server.received();
  EXPECT_NE(received.find("Authorization: Bearer token\r\n"), std::string::npos);
  EXPECT_TRUE(received.ends_with("\r\n\r\n" + std::string(5000, 'x')));
  request.body_file = folder / "nothing";
  EXPECT_EQ(test::error_of([&] { (void)http_request(request); }),
            "cannot read " + folder / "nothing" + ": No such file or directory.");
}

TEST(Http, DoesNotFollowRedirects) {
  OneAnswer server("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/there\r\nContent-Length: 0\r\n\r\n");
  const HttpAnswer answer = http_request(to(server.url));
  EXPECT_EQ(answer.status, 302);
  EXPECT_EQ(answer.location, "http://127.0.0.1:1/there");
  EXPECT_FALSE(answer.is_passing());
}

TEST(Http, ReportsWhenTheServerWantsToBeAskedAgain) {
  OneAnswer server("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n");
  const HttpAnswer answer = http_request(to(server.url));
  EXPECT_TRUE(answer.is_passing());
  EXPECT_EQ(answer.retry_after, Seconds(7));
}

TEST(Http, ReportsWhyThereIsNoAnswer) {
  std::string url;
  {
    const OneAnswer gone("");
    url = gone.url;
  }
  const HttpAnswer refused = http_request(to(url));
  EXPECT_EQ(refused.status, 0);
  EXPECT_TRUE(refused.is_passing());
  EXPECT_NE(refused.problem.find("connect"), std::string::npos) << refused.problem;
  const OneAnswer silent("");
  HttpRequest request = to(silent.url);
  request.timeout = Seconds(0.2);
  EXPECT_NE(http_request(request).problem.find("timed out"), std::string::npos);
  const OneAnswer silent_too("");
  request = to(silent_too.url);
  request.cancelled = [] { return true; };
  EXPECT_EQ(http_request(request).problem, "it was cancelled");
  const OneAnswer endless("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x'));
  request = to(endless.url);
  request.max_answer = 10;
  EXPECT_EQ(http_request(request).problem, "the answer is longer than 10 bytes");
}

TEST(Http, TakesCredentialsOutOfAUrl) {
  const SplitUrl split = split_credentials("https://me:a%40b@host:5000/path@x");
  EXPECT_EQ(split.url, "https://host:5000/path@x");
  EXPECT_EQ(split.user, "me");
  EXPECT_EQ(split.password, "a@b");
  EXPECT_EQ(split_credentials("http://host/a").url, "http://host/a");
  EXPECT_EQ(split_credentials("file:///a@b").url, "file:///a@b");
}

TEST(Http, EncodesPartsOfUrls) {
  EXPECT_EQ(url_encoded("a b/é=1~"), "a%20b%2F%C3%A9%3D1~");
  EXPECT_EQ(url_encoded("a/b", "/"), "a/b");
}

}  // namespace
}  // namespace levin::http_test
