#include "peer.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <stdexcept>

extern char** environ;

namespace bench {

namespace {

constexpr size_t kLogLines = 12;

std::runtime_error system_failure(const std::string& what) {
  return std::runtime_error(what + ": " + std::strerror(errno));
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_failure("cannot make a pipe");
  return ends;
}

std::string end_of(const std::string& path) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > kLogLines) lines.pop_front();
  }
  std::string text;
  for (const auto& line : lines) text += "\n  " + line;
  return text;
}

}  // namespace

Process::Process(const std::vector<std::string>& command, std::string log)
    : name_(command.at(0)), log_(std::move(log)) {
  std::signal(SIGPIPE, SIG_IGN);  // a peer that died is noticed by its missing answer
  for (const auto& word : command) {
    if (word.ends_with(".py")) name_ = word;
  }
  std::filesystem::create_directories(std::filesystem::path(log_).parent_path());
  const auto to_child = make_pipe();
  const auto from_child = make_pipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  std::vector<char*> arguments;
  for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  errno = ::posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  const bool started = errno == 0;
  posix_spawn_file_actions_destroy(&actions);
  ::close(to_child[0]);
  ::close(from_child[1]);
  in_ = ::fdopen(to_child[1], "w");
  out_ = ::fdopen(from_child[0], "r");
  if (started) return;
  const auto failure = system_failure("cannot start " + command[0]);
  std::fclose(in_);
  std::fclose(out_);
  throw failure;
}

Process::~Process() {
  std::fclose(in_);
  std::fclose(out_);
  ::waitpid(pid_, nullptr, 0);
}

void Process::send(const std::string& line) {
  if (std::fprintf(in_, "%s\n", line.c_str()) < 0 || std::fflush(in_) != 0) fail();
}

nlohmann::json Process::answer() {
  char* line = nullptr;
  size_t size = 0;
  const ssize_t length = ::getline(&line, &size, out_);
  const std::string text(length > 0 ? line : "", length > 0 ? static_cast<size_t>(length) : 0);
  std::free(line);  // NOLINT: getline's
  auto value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) fail();
  return value;
}

void Process::fail() const {
  throw std::runtime_error(name_ + " ended without an answer. The end of " + log_ + ":" + end_of(log_));
}

std::vector<std::string> peer_command(const std::string& program, const std::vector<std::string>& arguments) {
  const char* folder = std::getenv("LEVIN_PEERS");
  if (folder == nullptr) {
    static const bool is_noted = [] {
      std::printf("The Python peers are left out: run ./dev bench --peers to install them.\n\n");
      return true;
    }();
    (void)is_noted;
    return {};
  }
  ::setenv("PYTHONPATH", folder, 1);
  ::setenv("PYTHONNOUSERSITE", "1", 1);
  const char* programs = std::getenv("LEVIN_BENCH_PEERS");  // where this program was built is not where it runs
  std::vector<std::string> command = {
      std::string(folder) + "/python3", "-B",
      std::string(programs != nullptr ? programs : LEVIN_BENCH_PEERS) + "/" + program + ".py"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

std::string peer_log(const std::string& program) {
  const char* folder = std::getenv("LEVIN_BENCH_DIR");
  return (std::filesystem::path(folder != nullptr ? folder : "build/bench") / ("peer-" + program + ".log")).string();
}

std::shared_ptr<Peer> Peer::start(const std::string& program, const std::vector<std::string>& arguments) {
  const auto command = peer_command(program, arguments);
  if (command.empty()) return nullptr;
  return std::shared_ptr<Peer>(new Peer(command, peer_log(program)));
}

std::string Peer::why_not(const std::string& way) {
  process_.send("can " + way);
  return process_.answer().get<std::string>();
}

double Peer::round(const std::string& words) {
  process_.send(words);
  return process_.answer().get<double>();
}

}  // namespace bench
