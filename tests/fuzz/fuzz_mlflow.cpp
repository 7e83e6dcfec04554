// libFuzzer target: an input is the answers of an MLflow server, as bytes, separated by lines "%%%%": the n-th
// connection gets the n-th answer, and later connections the last. For any answers, MlflowClient delivers its events or
// returns a problem that can be shown; what it notes of the run can be read again. An input that begins with "<" is the
// answer of a server of S3 instead, which is XML: it is read, or refused with an Error.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "fuzz_support.h"
#include "levin/core/files/xml_tree.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/loggers/mlflow_client.h"
#include "levin/strategies/launch/listening_socket.h"
#include "support/temporary_folder.h"

namespace levin::fuzz {
namespace {

constexpr size_t kMaxAnswers = 8;
constexpr int kMaxRequests = 40;  // of one call: a batch is halved after each refusal

// Answers every request with the bytes of an input.
class Server {
 public:
  Server() : socket_("127.0.0.1", 0), port_(socket_.port()), thread_([this] { serve(); }) {}

  void set_answers(std::vector<std::string> answers) {
    const std::lock_guard lock(mutex_);
    answers_ = std::move(answers);
    requests_ = 0;
  }
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] int requests() const { return requests_; }

 private:
  // A client that has given up does not wait until its answer is sent: the next input may come meanwhile.
  std::string next_answer() {
    const std::lock_guard lock(mutex_);
    return answers_[std::min<size_t>(static_cast<size_t>(requests_++), answers_.size() - 1)];
  }

  void serve() {
    for (;;) {
      const Connection connection(::accept4(socket_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection) continue;
      if (!read_request(connection.descriptor())) continue;
      const std::string answer = next_answer();
      (void)::send(connection.descriptor(), answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }

  static bool read_request(int connection) {
    std::string request;
    size_t end = std::string::npos;
    size_t body = 0;
    while (end == std::string::npos || request.size() < end + 4 + body) {
      char piece[16384];
      const ssize_t got = ::recv(connection, piece, sizeof piece, 0);
      if (got <= 0) return false;
      request.append(piece, static_cast<size_t>(got));
      if (end != std::string::npos) continue;
      end = request.find("\r\n\r\n");
      const size_t length = request.find("Content-Length: ");
      if (length < end) body = std::stoul(request.substr(length + 16));
    }
    return true;
  }

  ListeningSocket socket_;
  int64_t port_;
  std::mutex mutex_;
  std::vector<std::string> answers_ = {};
  std::atomic<int> requests_ = 0;
  std::thread thread_;
};

Server& server() {
  static auto* const started = new Server;  // never destroyed: its thread runs until the process ends
  return *started;
}

SpilledEvent event(int64_t number, const nlohmann::json& members) {
  return {.number = number, .values = 1, .line = members.dump() + "\n"};
}

const std::vector<SpilledEvent>& events() {
  static const std::vector<SpilledEvent> all = [] {
    std::vector<SpilledEvent> made;
    for (int64_t k = 0; k < 3; ++k) {
      made.push_back(event(k, {{"k", "metrics"}, {"t", 1764000000000 + k}, {"step", k}, {"i", {{"loss", 0.5}}}}));
    }
    made.push_back(event(3, {{"k", "params"}, {"i", {{"lr", "0.1"}}}}));
    made.push_back(event(4, {{"k", "text"}, {"to", "notes/a.txt"}, {"text", "a note"}}));
    made.push_back(event(5, {{"k", "status"}, {"status", "FINISHED"}, {"t", 1764000000009}}));
    return made;
  }();
  return all;
}

void check(const Delivery& delivery, size_t events) {
  using Kind = Delivery::Kind;
  const bool takes =
      delivery.kind == Kind::delivered || delivery.kind == Kind::refused || delivery.kind == Kind::damaged;
  expect(takes ? delivery.count >= 1 && delivery.count <= events : delivery.count == 0,
         "only events that were offered are done", std::to_string(delivery.count));
  expect(std::isfinite(delivery.wait.count()) && delivery.wait.count() >= 0, "the server's wish is a time");
  if (delivery.kind == Kind::delivered) return;
  expect(!delivery.problem.empty() && delivery.problem.size() < 4000, "a problem is not empty and not endless",
         delivery.problem);
  check_planted(delivery.problem, "was deleted there");
}

void check_xml(std::string_view input) {
  try {
    const XmlElement root = read_xml(input);
    ++Counts::instance().whole;
    expect(!root.name.empty(), "an element has a name");
    const XmlElement again = read_xml("<a>" + xml_text(root.text) + "</a>");
    expect(again.text == root.text && again.elements.empty(), "written text reads back unchanged", root.text);
  } catch (const Error& error) {
    expect_good_message(error.what(), 1000);
  }
}

}  // namespace

void run_one(std::string_view input) {
  static const test::TemporaryFolder folder;
  ++Counts::instance().inputs;
  if (input.starts_with('<')) return check_xml(input);
  std::error_code ignored;
  std::filesystem::remove(folder / "mlflow.json", ignored);
  server().set_answers(sections_of(input, kMaxAnswers));
  MlflowRun run;
  run.uuid = "0123456789abcdef";
  run.tracking_uri = server().url();
  run.experiment_name = "fuzz";
  MlflowClient client(folder.path(), run, {.user = "user", .password = "hunter2"}, {Seconds(1), Seconds(3)});
  std::span<const SpilledEvent> left = events();
  for (int call = 0; call < 6 && !left.empty(); ++call) {
    const int before = server().requests();
    const Delivery delivery = client.deliver(left, [] { return false; });
    expect(server().requests() - before <= kMaxRequests, "a call does not ask the server without end");
    check(delivery, left.size());
    const bool is_known_to_server =
        input.find("hunter2") != std::string_view::npos;  // libFuzzer finds it in the target
    expect(is_known_to_server || delivery.problem.find("hunter2") == std::string::npos, "a problem names no password",
           delivery.problem);
    if (delivery.kind == Delivery::Kind::halted || delivery.kind == Delivery::Kind::again) break;
    left = left.subspan(delivery.count);
    if (left.empty()) ++Counts::instance().whole;
  }
  if (!std::filesystem::exists(folder / "mlflow.json")) return;
  const auto noted = read_mlflow_run(folder.path());
  expect(noted.has_value(), "what is noted of a run can be read again");
  expect(noted->tracking_uri == run.tracking_uri && noted->uuid == run.uuid,
         "an answer changes neither server nor run");
}

void begin() {
  Counts::print_at_exit();
  Console::instance().capture([](const std::string&) {});
}

}  // namespace levin::fuzz
