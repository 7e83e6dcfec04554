#include "levin/strategies/launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "levin/core/config_node.h"
#include "levin/core/console.h"
#include "levin/core/error.h"
#include "levin/strategies/cluster_environment.h"
#include "levin/strategies/rank_status.h"

extern char** environ;

namespace levin {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kRestarts = "LEVIN_RESTART";
constexpr const char* kStoreSocket = "LEVIN_STORE_FD";
constexpr std::array kForwarded{SIGINT, SIGTERM, SIGUSR1};

std::string reason() {
  return std::strerror(errno);
}

// ---- signals: handlers write into a pipe, the loop reads it ---------------------------------------------------------

std::atomic<int> pipe_end = -1;

void note_signal(int number, siginfo_t* info, void*) {
  const int saved = errno;
  // A terminal sends Ctrl-C to the ranks as well: handing it on would make two of one.
  const bool from_terminal = number == SIGINT && info->si_code == SI_KERNEL;
  const std::array<char, 2> message = {static_cast<char>(number), static_cast<char>(from_terminal ? 1 : 0)};
  (void)!::write(pipe_end.load(), message.data(), message.size());
  errno = saved;
}

class Signals {
 public:
  Signals() {
    if (::pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw Error("launching ranks: no pipe: " + reason() + ".");
    pipe_end = ends_[1];
    struct sigaction action = {};
    action.sa_sigaction = note_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (const int number : kForwarded) ::sigaction(number, &action, &before_[number]);
    ::sigaction(SIGCHLD, &action, &before_[SIGCHLD]);
  }
  ~Signals() {
    for (const auto& [number, action] : before_) ::sigaction(number, &action, nullptr);
    for (const int end : ends_) ::close(end);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  struct Message {
    int number;
    bool from_terminal;
  };
  /// The next, within `timeout`.
  std::optional<Message> wait(std::chrono::milliseconds timeout) {
    pollfd waiting = {ends_[0], POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(timeout.count())) <= 0) return std::nullopt;
    std::array<char, 2> message = {};
    if (::read(ends_[0], message.data(), message.size()) != 2) return std::nullopt;
    return Message{message[0], message[1] != 0};
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
  std::map<int, struct sigaction> before_;
};

// ---- starting -------------------------------------------------------------------------------------------------------

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string word; std::getline(file, word, '\0');) arguments.push_back(word);
  return arguments;
}

// Listens on loopback, on a port that the kernel gives.
class StoreSocket {
 public:
  StoreSocket() : descriptor_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    if (descriptor_ < 0 || ::bind(descriptor_, plain, size) != 0 || ::listen(descriptor_, 128) != 0 ||
        ::getsockname(descriptor_, plain, &size) != 0) {
      throw Error("launching ranks: no port on 127.0.0.1: " + reason() + ".");
    }
    port_ = ntohs(address.sin_port);
  }
  ~StoreSocket() { ::close(descriptor_); }
  StoreSocket(const StoreSocket&) = delete;
  StoreSocket& operator=(const StoreSocket&) = delete;
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] int port() const { return port_; }

 private:
  int descriptor_;
  int port_ = 0;
};

using Environment = std::map<std::string, std::string>;

Environment own_environment() {
  Environment all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (auto& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

struct Rank {
  int64_t local_rank = 0;
  int64_t rank = 0;
  pid_t pid = -1;
  bool running = false;
  int status = 0;  // of waitpid
};

class Job {
 public:
  explicit Job(const LaunchOptions& options) : options_(options), pages_(options.local_ranks) {
    const Variables variables = process_variables();
    if (options.num_nodes == 1) return;
    const auto node = variables("NODE_RANK");
    if (!node || !variables("MASTER_ADDR") || !variables("MASTER_PORT")) {
      throw ConfigError("TrainerOptions.num_nodes: " + std::to_string(options.num_nodes) +
                        " nodes need to know each other: set NODE_RANK, MASTER_ADDR and MASTER_PORT on each, or start "
                        "the ranks with torchrun, srun or mpirun.");
    }
    node_rank_ = std::atoll(node->c_str());
  }
  ~Job() { end_all(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int run() {
    for (int64_t restart = 0;; ++restart) {
      start(restart);
      const int status = watch();
      if (status == 0 || stopped_) return status;
      if (restart >= options_.max_restarts) return status;
      Console::instance().warn("All ranks start again from the last checkpoint (restart " +
                               std::to_string(restart + 1) + " of " + std::to_string(options_.max_restarts) + ").");
    }
  }

 private:
  void start(int64_t restart) {
    pages_.clear();
    const StoreSocket store;
    Environment shared = own_environment();
    shared["LEVIN_LAUNCHED"] = "1";
    shared[kRestarts] = std::to_string(restart);
    shared["WORLD_SIZE"] = std::to_string(options_.local_ranks * options_.num_nodes);
    shared["LOCAL_WORLD_SIZE"] = std::to_string(options_.local_ranks);
    shared["NODE_RANK"] = std::to_string(node_rank_);
    shared[RankPages::kVariable] = std::to_string(pages_.descriptor());
    const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
    shared.emplace("OMP_NUM_THREADS", std::to_string(std::max<int64_t>(1, cores / options_.local_ranks)));
    if (options_.num_nodes == 1) {
      shared["MASTER_ADDR"] = "127.0.0.1";
      shared["MASTER_PORT"] = std::to_string(store.port());
    }
    ranks_.assign(static_cast<size_t>(options_.local_ranks), {});
    for (int64_t k = 0; k < options_.local_ranks; ++k) {
      Environment own = shared;
      Rank& rank = ranks_[static_cast<size_t>(k)];
      rank.local_rank = k;
      rank.rank = node_rank_ * options_.local_ranks + k;
      own["LOCAL_RANK"] = std::to_string(k);
      own["RANK"] = std::to_string(rank.rank);
      const bool keeps_store = options_.num_nodes == 1 && k == 0;
      if (keeps_store) own[kStoreSocket] = std::to_string(store.descriptor());
      rank.pid = start_one(own, keeps_store ? -1 : store.descriptor());
      rank.running = true;
    }
  }

  // `not_inherited`: a descriptor that this rank is not to have.
  static pid_t start_one(const Environment& environment, int not_inherited) {
    std::vector<std::string> arguments = own_arguments();
    std::vector<std::string> variables;
    for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
    const std::vector<char*> argv = pointers(arguments);
    const std::vector<char*> envp = pointers(variables);
    const pid_t launcher = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) throw Error("launching ranks: no process: " + reason() + ".");
    if (pid > 0) return pid;
    // The child: system calls only until exec.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(127);  // it died before prctl
    if (not_inherited >= 0) ::close(not_inherited);
    ::execve("/proc/self/exe", argv.data(), envp.data());
    ::_exit(127);
  }

  // ---- watching
  // ------------------------------------------------------------------------------------------------------

  // Until no rank runs; the exit status of the job.
  int watch() {
    failed_ = nullptr;
    std::optional<Clock::time_point> kill_at;
    while (collect()) {
      if (failed_ != nullptr && !kill_at) kill_at = Clock::now() + options_.grace;
      if (kill_at && Clock::now() >= *kill_at) signal_all(SIGKILL);
      const auto message = signals_.wait(std::chrono::milliseconds(kill_at ? 50 : 1000));
      if (message && message->number != SIGCHLD) pass_on(*message);
    }
    if (failed_ == nullptr) return 0;
    if (!stopped_) tell();
    return exit_status(failed_->status);
  }

  // Takes in who has ended; whether any still runs.
  bool collect() {
    bool running = false;
    for (Rank& rank : ranks_) {
      if (rank.running && ::waitpid(rank.pid, &rank.status, WNOHANG) == rank.pid) {
        rank.running = false;
        if (exit_status(rank.status) != 0 && comes_first(rank)) failed_ = &rank;
      }
      running = running || rank.running;
    }
    return running;
  }

  // Of ranks that ended with an error: a rank that was killed, or noted its error first, is the cause of the others'.
  [[nodiscard]] bool comes_first(const Rank& rank) const {
    if (failed_ == nullptr) return true;
    if (WIFSIGNALED(failed_->status)) return false;
    const int64_t one = pages_[rank.local_rank].failed_at;
    const int64_t other = pages_[failed_->local_rank].failed_at;
    return one != 0 && other != 0 && one < other;
  }

  void pass_on(const Signals::Message& message) {
    const bool again = std::exchange(stopped_, true);
    if (message.number == SIGINT && again) return signal_all(SIGKILL);
    if (!message.from_terminal) signal_all(message.number);
  }

  void signal_all(int number) {
    for (const Rank& rank : ranks_) {
      if (rank.running) ::kill(rank.pid, number);
    }
  }

  void end_all() {
    signal_all(SIGKILL);
    for (Rank& rank : ranks_) {
      if (rank.running) ::waitpid(rank.pid, &rank.status, 0);
      rank.running = false;
    }
  }

  static int exit_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

  void tell() const {
    std::array<char, 256> host = {};
    ::gethostname(host.data(), host.size() - 1);
    const RankPage& page = pages_[failed_->local_rank];
    std::string text = "rank " + std::to_string(failed_->rank) + " on " + host.data() + " (process " +
                       std::to_string(failed_->pid) + ") ";
    text += WIFSIGNALED(failed_->status) ? "was killed by signal " + std::to_string(WTERMSIG(failed_->status)) + " (" +
                                               strsignal(WTERMSIG(failed_->status)) + ")"
                                         : "ended with status " + std::to_string(exit_status(failed_->status));
    text += " in " + page.text() + ".";
    if (page.failed_at != 0) text += " Its error: " + std::string(page.error.data());
    const int64_t now = Clock::now().time_since_epoch().count();
    for (const Rank& rank : ranks_) {
      if (&rank == failed_) continue;
      const RankPage& other = pages_[rank.local_rank];
      const double ago = static_cast<double>(now - other.moved_at) * 1e-9;
      text += "\n  rank " + std::to_string(rank.rank) + " stood in " + other.text() +
              (other.moved_at > 0 ? ", " + number_text(std::round(ago * 10) / 10) + " s ago" : "");
    }
    Console::instance().error(text);
  }

  LaunchOptions options_;
  RankPages pages_;
  Signals signals_;
  int64_t node_rank_ = 0;
  std::vector<Rank> ranks_;
  const Rank* failed_ = nullptr;  // whose end was the first cause
  bool stopped_ = false;          // somebody asked for the end
};

}  // namespace

int launch(const LaunchOptions& options) {
  return Job(options).run();
}

int64_t restarts_so_far() {
  const Variables variables = process_variables();
  const auto text = variables("TORCHELASTIC_RUN_ID") ? variables("TORCHELASTIC_RESTART_COUNT") : variables(kRestarts);
  return text ? std::atoll(text->c_str()) : 0;
}

bool launcher_keeps_store() {
  return process_variables()("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
}

int inherited_store_socket() {
  const char* text = std::getenv(kStoreSocket);
  return text != nullptr ? std::atoi(text) : -1;
}

}  // namespace levin
