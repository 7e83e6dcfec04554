// What `levin runs send` gives to whom: folders from others, which name a server, files and events.
#include "levin/loggers/send_outbox.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <thread>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/loggers/mlflow_client.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::send_outbox_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::CapturedConsole;
using test::expect_parts;
using test::has;
using test::TemporaryFolder;

// A server on the loopback that keeps every request and answers with the JSON that `answer` gives for its first line.
class Server {
 public:
  explicit Server(std::function<std::string(const std::string& line)> answer) : answer_(std::move(answer)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 8) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw Error("no socket");
    url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }

  // All that it was sent, headers included.
  std::string received() {
    const std::lock_guard lock(mutex_);
    return received_;
  }

  std::string url;

 private:
  void serve() {
    for (int peer = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC); peer >= 0;
         peer = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) {
      const std::string request = read_request(peer);
      const std::string body = answer_(request.substr(0, request.find("\r\n")));
      const std::string text =
          "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
      {
        const std::lock_guard lock(mutex_);
        received_ += request + "\n";
      }
      (void)!::send(peer, text.data(), text.size(), MSG_NOSIGNAL);
      ::close(peer);
    }
  }

  static std::string read_request(int peer) {
    std::string request;
    char buffer[4096];
    for (size_t expected = std::string::npos; request.size() < expected;) {
      const ssize_t got = ::recv(peer, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      request.append(buffer, static_cast<size_t>(got));
      const size_t end = request.find("\r\n\r\n");
      if (end == std::string::npos) continue;
      const size_t length = request.find("Content-Length: ");
      expected = end + 4 + (length < end ? std::stoul(request.substr(length + 16)) : 0);
    }
    return request;
  }

  std::function<std::string(const std::string&)> answer_;
  int listener_ = -1;
  std::mutex mutex_;
  std::string received_;
  std::thread thread_;
};

// Has the run that each folder of these tests names.
std::string any_answer(const std::string& line) {
  if (!has(line, "runs/get")) return "{}";
  return R"({"run": {"info": {"run_id": "r1", "artifact_uri": "mlflow-artifacts:/1/r1/artifacts"}}})";
}

constexpr const char* kMetrics = R"({"n":1,"v":1,"k":"metrics","step":0,"t":1,"i":[["loss",0.5]]})";

// The folder of a run that has not sent these events, as MLFlowLogger leaves it.
void write_folder(const TemporaryFolder& folder, const std::string& url, const std::string& events) {
  folder.write("mlflow.json", json{{"uuid", "u"}, {"tracking_uri", url}, {"run_id", "r1"}}.dump());
  folder.write("outbox.jsonl", events + "\n");
}

// The environment of a user who has a token, for a test.
class Token {
 public:
  explicit Token(const std::string& tracking_uri = "") {
    ::setenv("MLFLOW_TRACKING_TOKEN", "secret-token", 1);
    tracking_uri.empty() ? ::unsetenv("MLFLOW_TRACKING_URI") : ::setenv("MLFLOW_TRACKING_URI", tracking_uri.c_str(), 1);
  }
  ~Token() {
    ::unsetenv("MLFLOW_TRACKING_TOKEN");
    ::unsetenv("MLFLOW_TRACKING_URI");
  }
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;
};

TEST(SendOutbox, GivesNoCredentialsToAServerThatOnlyTheFolderNames) {
  Server server(any_answer);
  for (const std::string& named : {std::string(), std::string("http://127.0.0.1:1"), "https" + server.url.substr(4)}) {
    const TemporaryFolder folder;
    write_folder(folder, server.url, kMetrics);
    const Token token(named);
    const CapturedConsole console;
    EXPECT_EQ(send_outbox(folder.path(), Seconds(20)).delivered, 1);
    expect_parts(console.text(), {"the credentials of the environment are not sent to " + server.url,
                                  named.empty() ? "a server that only this folder names" : "names another server",
                                  "set MLFLOW_TRACKING_URI to its URL"});
  }
  EXPECT_TRUE(has(server.received(), "runs/log-batch"));
  EXPECT_FALSE(has(server.received(), "Authorization")) << server.received();
}

TEST(SendOutbox, GivesCredentialsToTheServerThatTheUserNames) {
  Server server(any_answer);
  const TemporaryFolder folder;
  write_folder(folder, server.url + "/", kMetrics);
  const Token token(server.url);
  EXPECT_EQ(send_outbox(folder.path(), Seconds(20)).delivered, 1);
  EXPECT_TRUE(has(server.received(), "Authorization: Bearer secret-token")) << server.received();
}

TEST(MlflowCredentials, BelongToTheServerThatTheEnvironmentNamesElseToTheRuns) {
  const auto token_for = [](const std::string& uri, const std::string& named, NamedBy by) {
    std::map<std::string, std::string> variables{{"MLFLOW_TRACKING_TOKEN", "t"}};
    if (!named.empty()) variables["MLFLOW_TRACKING_URI"] = named;
    const auto find = [&](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    return mlflow_credentials(find, uri, by, "X").token;
  };
  const CapturedConsole console;
  EXPECT_EQ(token_for("http://a", "", NamedBy::user), "t");
  EXPECT_EQ(token_for("http://a", "", NamedBy::folder), "");
  for (const NamedBy by : {NamedBy::user, NamedBy::folder}) {
    for (const char* same : {"http://a", "http://a/", "http://A:80/x", "http://u:p@a"}) {
      const bool has_own = std::string(same).find('@') != std::string::npos;  // which win
      EXPECT_EQ(token_for("http://a", same, by), has_own ? "" : "t") << same;
    }
    for (const char* other : {"https://a", "http://a:81", "http://a.b", "http://b@a.c", "databricks", "http://a@b"}) {
      EXPECT_EQ(token_for("http://a", other, by), "") << other;
    }
    EXPECT_EQ(token_for("http://good@evil", "http://good", by), "");
  }
}

TEST(SendOutbox, UploadsAndRemovesNothingThatALinkLeadsTo) {
  Server server(any_answer);
  for (const bool is_folder : {true, false}) {
    const TemporaryFolder folder, theirs;
    theirs.write("key", "private");
    write_folder(folder, server.url, R"({"n":1,"v":1,"k":"file","to":"a","file":"outbox_files/key"})");
    if (is_folder) {
      fs::create_directory_symlink(theirs.path(), folder / "outbox_files");
    } else {
      fs::create_directory(folder / "outbox_files");
      fs::create_symlink(theirs / "key", folder / "outbox_files/key");
    }
    const CapturedConsole console;
    const OutboxReport report = send_outbox(folder.path(), Seconds(20));
    EXPECT_EQ(report.damaged, 1);
    EXPECT_EQ(report.delivered + report.waiting + report.refused, 0);
    expect_parts(console.text(), {"1 value in " + folder / "outbox.jsonl" + " cannot be sent: ",
                                  is_folder ? "outbox_files/key is not a file of the outbox."
                                            : "outbox_files/key is not a regular file, and cannot be sent as a."});
    EXPECT_EQ(read_file(theirs / "key"), "private");
  }
  EXPECT_FALSE(has(server.received(), "PUT ")) << server.received();
}

TEST(SendOutbox, SendsAndRemovesTheFilesOfItsFolder) {
  Server server(any_answer);
  const TemporaryFolder folder;
  fs::create_directory(folder / "outbox_files");
  folder.write("outbox_files/1", "contents");
  write_folder(folder, server.url, R"({"n":1,"v":1,"k":"file","to":"a.txt","file":"outbox_files/1"})");
  EXPECT_EQ(send_outbox(folder.path(), Seconds(20)).delivered, 1);
  expect_parts(server.received(), {"PUT /api/2.0/mlflow-artifacts/artifacts/1/r1/artifacts/a.txt", "contents"});
  EXPECT_FALSE(fs::exists(folder / "outbox_files/1"));
}

TEST(SendOutbox, FollowsNoLinkInPlaceOfItsQueue) {
  const std::string torn = "{\"a\": 1}\nno line end";  // what is not a whole line would be cut off
  for (const char* name : {"outbox.jsonl", "outbox.position"}) {
    Server server(any_answer);
    const TemporaryFolder folder;
    write_folder(folder, server.url, kMetrics);
    fs::remove(folder / name);
    const std::string theirs = folder.write("theirs", torn);
    fs::create_symlink(theirs, folder / name);
    const CapturedConsole console;
    EXPECT_EQ(outbox_folders(folder.path()), std::vector<std::string>{folder.path()});
    const std::string error = test::error_of([&] { (void)send_outbox(folder.path(), Seconds(20)); });
    expect_parts(error, {std::string(name) + ": it is a symbolic link, not a regular file."});
    EXPECT_EQ(read_file(theirs), torn) << name;
  }
}

TEST(SendOutbox, SearchesNoFolderThatALinkLeadsTo) {
  const TemporaryFolder folder, theirs;
  write_folder(theirs, "http://127.0.0.1:1", kMetrics);
  fs::create_directory_symlink(theirs.path(), folder / "link");
  EXPECT_TRUE(outbox_folders(folder.path()).empty());
}

// Each is left out, and neither the server nor the events after it are blamed for it.
TEST(SendOutbox, ADamagedEventDoesNotKeepTheOthers) {
  for (const char* damaged :
       {R"({"n":2,"v":3,"k":"metrics","i":[["loss",0.5]]})",
        R"({"n":2,"v":3,"k":"metrics","step":0,"t":1,"i":[["loss"]]})",
        R"({"n":2,"v":3,"k":"metrics","step":0,"t":1,"i":{"loss":1}})", R"({"n":2,"v":3,"k":"params","i":7})",
        R"({"n":2,"v":3,"k":"text","to":5,"text":"x"})", R"({"n":2,"v":3,"k":"file","to":"a"})",
        R"({"n":2,"v":3,"k":"status","t":1})", R"({"n":2,"v":3,"k":[1]})", R"({"n":2,"v":3})"}) {
    Server server(any_answer);
    const TemporaryFolder folder;
    write_folder(
        folder, server.url,
        std::string(kMetrics) + "\n" + damaged + "\n{\"n\":3,\"v\":1,\"k\":\"tags\",\"i\":[[\"last\",\"x\"]]}");
    const CapturedConsole console;
    const OutboxReport report = send_outbox(folder.path(), Seconds(20));
    EXPECT_EQ(report.delivered, 2) << damaged;
    EXPECT_EQ(report.damaged, 3) << damaged;
    EXPECT_EQ(report.waiting + report.refused, 0) << damaged;
    expect_parts(console.text(), {"3 values in " + folder / "outbox.jsonl" +
                                  " cannot be sent: event 2 is not an "
                                  "event of MLFlowLogger: {\"n\":2"});
    EXPECT_FALSE(has(console.text(), "refused") || has(console.text(), "cannot be reached")) << console.text();
    expect_parts(server.received(), {"\"loss\"", "\"last\""});
  }
}

// The numbers of events grow; one that is damaged hides no other event, and no line that lacks only its end is lost.
TEST(SendOutbox, ANumberThatIsDamagedDoesNotHideTheOthers) {
  Server server(any_answer);
  const auto event = [](const std::string& number, const std::string& name) {
    return R"({"n":)" + number + R"(,"v":1,"k":"metrics","step":0,"t":1,"i":[[")" + name + R"(",0.5]]})";
  };
  for (const std::string& wrong : {std::string("140737488355328"), std::string("1")}) {
    const TemporaryFolder folder;
    write_folder(folder, server.url, "");
    folder.write("outbox.jsonl", event("1", "one") + "\n" + event("2", "two") + "\n" + event(wrong, "wrong") + "\n" +
                                     event("4", "four") + "\n" + event("5", "five"));
    const CapturedConsole console;
    EXPECT_EQ(send_outbox(folder.path(), Seconds(20)).delivered, 4) << wrong;
    expect_parts(console.text(), {"outbox.jsonl: 1 line is damaged, and left out. The other lines are sent."});
  }
  for (const char* name : {"one", "two", "four", "five"}) EXPECT_TRUE(has(server.received(), name));
  EXPECT_FALSE(has(server.received(), "wrong"));
}

TEST(SendOutbox, SendsFilesToNoOtherPlaceOfTheServer) {
  Server server(any_answer);
  for (const std::string& to : {std::string("../../../../../../admin/users"), std::string("/admin"),
                                std::string("a//b"), std::string("a/./b"), std::string("")}) {
    const TemporaryFolder folder;
    write_folder(folder, server.url, json{{"n", 1}, {"v", 1}, {"k", "text"}, {"to", to}, {"text", "mine"}}.dump());
    const Token token(server.url);
    const CapturedConsole console;
    const OutboxReport report = send_outbox(folder.path(), Seconds(20));
    EXPECT_EQ(report.damaged, 1) << to;
  }
  EXPECT_FALSE(has(server.received(), "mine"));
}

TEST(SendOutbox, ALineThatIsNotAnEventIsReported) {
  Server server(any_answer);
  const TemporaryFolder folder;
  write_folder(folder, server.url, "{\"n\":1,\"v\":1,\"k\":\"tags\",\"i\":[[\"a\",\n" + std::string(kMetrics));
  const CapturedConsole console;
  EXPECT_EQ(send_outbox(folder.path(), Seconds(20)).delivered, 1);
  expect_parts(console.text(), {folder / "outbox.jsonl: 1 line is damaged, and left out. The other lines are sent."});
}

TEST(MlflowClient, AnAnswerWithoutItsPartsIsReportedAndNothingIsLost) {
  for (const char* answer : {"{}", "[]", "5", "\"x\"", "null", "no JSON", R"({"runs": [{}]})", R"({"runs": [7]})",
                             R"({"runs": 7})", R"({"runs": {"a": 1}})", R"({"runs": [{"info": 7}]})",
                             R"({"runs": [{"info": {"run_id": 7}}]})", R"({"run": {"info": []}})", R"({"run": 1})",
                             R"({"experiment": 7})", R"({"experiment": {"experiment_id": 7}})"}) {
    for (const bool is_known : {true, false}) {  // whether the folder names a run
      const auto only_this = [&](const std::string& line) {
        const bool is_experiment = has(line, "experiments/") && !has(answer, "experiment");
        return is_experiment ? std::string(R"({"experiment": {"experiment_id": "1"}})") : std::string(answer);
      };
      Server server(only_this);
      const TemporaryFolder folder;
      MlflowRun run;
      run.uuid = "u";
      run.tracking_uri = server.url;
      run.run_id = is_known ? "r1" : "";
      MlflowClient client(folder.path(), run, {}, {});
      const SpilledEvent event{1, 1, kMetrics};
      const Delivery delivery = client.deliver(std::span(&event, 1), [] { return false; });
      EXPECT_EQ(delivery.kind, Delivery::Kind::again) << answer;
      EXPECT_EQ(delivery.count, 0U) << answer;
      expect_parts(delivery.problem, {"the answer is not one of MLflow's"});
    }
  }
}

}  // namespace
}  // namespace levin::send_outbox_test
