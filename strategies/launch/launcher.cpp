#include "levin/strategies/launch/launcher.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/rank_status.h"
#include "levin/core/process/stop_signal.h"
#include "levin/core/process/this_process.h"
#include "levin/core/process/threads.h"
#include "levin/strategies/launch/cluster_environment.h"
#include "levin/strategies/launch/launcher_signals.h"
#include "levin/strategies/launch/listening_socket.h"
#include "levin/strategies/launch/rank_process.h"

namespace levin {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kRestarts = "LEVIN_RESTART";
constexpr const char* kStoreSocket = "LEVIN_STORE_FD";

struct Rank {
  int64_t local_rank = 0;
  int64_t rank = 0;
  pid_t pid = -1;
  bool running = false;
  int status = 0;  // of waitpid
};

// Libraries that do not check for memory end a process by one of these signals where a limit is reached: oneDNN does.
// The C library ends it with this status.
std::string memory_hint(int status) {
  const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const bool is_of_libc = WIFEXITED(status) && WEXITSTATUS(status) == 127;
  if (number != SIGSEGV && number != SIGBUS && number != SIGABRT && !is_of_libc) return "";
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    return " Its memory is limited (ulimit -v, -d), and a library ends a process like this where the memory ends: "
           "raise the limit, or use less memory.";
  }
  return "";
}

class Job {
 public:
  explicit Job(const LaunchOptions& options) : options_(options), pages_(options.local_ranks) {
    const Variables variables = process_variables();
    if (options.num_nodes == 1) return;
    const auto node = variables("NODE_RANK");
    if (!node || !variables("MASTER_ADDR") || !variables("MASTER_PORT")) {
      throw ConfigError("TrainerOptions.num_nodes: " + count_of(options.num_nodes, "node") +
                        " have to find each other: set NODE_RANK, MASTER_ADDR and MASTER_PORT on each, or start "
                        "the ranks with torchrun, srun or mpirun.");
    }
    node_rank_ = environment_number(*node, "NODE_RANK");
    if (node_rank_ >= options.num_nodes) {
      throw ConfigError("environment: NODE_RANK is " + *node + ", and TrainerOptions.num_nodes is " +
                        std::to_string(options.num_nodes) + ". Number the nodes from 0.");
    }
  }
  ~Job() { end_all(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int run() {
    for (int64_t restart = 0;; ++restart) {
      start(restart);
      const int status = watch();
      if (status == 0 || was_stopped()) return status;
      // A mistake in the configuration is there in the next start too.
      if (restart >= options_.max_restarts || status == kExitBadConfig) return status;
      Console::instance().warn("All ranks start again from the last checkpoint (restart " +
                               std::to_string(restart + 1) + " of " + std::to_string(options_.max_restarts) + ").");
    }
  }

 private:
  void start(int64_t restart) {
    pages_.clear();
    const ListeningSocket store("127.0.0.1", 0);
    ::fcntl(store.descriptor(), F_SETFD, 0);  // rank 0 inherits it
    Environment shared = own_environment();
    shared[kRestarts] = std::to_string(restart);
    shared["WORLD_SIZE"] = std::to_string(options_.local_ranks * options_.num_nodes);
    shared["LOCAL_WORLD_SIZE"] = std::to_string(options_.local_ranks);
    shared["NODE_RANK"] = std::to_string(node_rank_);
    shared[RankPages::kVariable] = std::to_string(pages_.descriptor());
    const int64_t threads = std::max<int64_t>(1, usable_cores().count / options_.local_ranks);
    if (shared.emplace("OMP_NUM_THREADS", std::to_string(threads)).second)
      shared[kThreadShare] = std::to_string(threads);
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
      rank.pid = start_rank_process(own, keeps_store ? -1 : store.descriptor());
      rank.running = true;
      log::launcher.info("rank {} is process {}", rank.rank, rank.pid);
    }
  }

  // ---- watching

  // Runs until all ranks have ended; returns the exit status of the job.
  int watch() {
    failed_ = nullptr;
    std::optional<Clock::time_point> failed_at;
    while (collect()) {
      check_rank_signals();
      if (failed_ != nullptr && !failed_at) failed_at = Clock::now();
      // After a stop request, ranks without files to write end first: even then a save is not interrupted. If a rank
      // has failed, another may wait for a file that it will never write.
      const bool may_save = stops_.any() && failed_ != nullptr && !WIFSIGNALED(failed_->status);
      if (failed_at && Clock::now() >= (may_save ? std::max(*failed_at, last_saved()) : *failed_at) + options_.grace) {
        signal_all(SIGKILL);
      }
      if (stop_at_) end_if_grace_is_over();
      const auto number = signals_.wait(std::chrono::milliseconds(failed_at || stop_at_ ? 50 : 1000));
      if (number && *number != SIGCHLD) handle(*number);
    }
    if (forced_ != 0 || was_stopped()) report_ends();
    if (forced_ != 0) return 128 + forced_;
    if (failed_ == nullptr) return 0;
    // A rank whose trainer does not exist yet is ended by the signal itself, and reports nothing.
    if (!was_stopped() || WIFSIGNALED(failed_->status)) report_failure();
    return exit_status(failed_->status);
  }

  // Also if only another node's ranks received the request, or it was a file.
  [[nodiscard]] bool was_stopped() const {
    return stops_.any() || forced_ != 0 || std::any_of(ranks_.begin(), ranks_.end(), [this](const Rank& rank) {
             return pages_[rank.local_rank].stopped != 0;
           });
  }

  // Handles a request to end. The ranks count it once, even if it reaches them in several ways.
  void handle(int number) {
    const StopRequests::Kind kind = stops_.note(number);
    if (kind == StopRequests::Kind::first) {
      signal_all(number);
      own_grace_ = begin_grace(number) || own_grace_;
    }
    if (kind == StopRequests::Kind::again && number != SIGUSR1) {  // a scheduler repeats its warning
      force_end(number, "came again, and these ranks had not ended");
    }
  }

  // Handles a signal to a single rank: it may wait for another one that hangs, and does not enforce the grace time
  // itself. Once the ranks have stopped for it, or continue with another fit, the grace time is cancelled.
  void check_rank_signals() {
    int number = 0;
    for (const Rank& rank : ranks_) {
      if (rank.running && number == 0) number = static_cast<int>(pages_[rank.local_rank].stop);
    }
    if (own_grace_) return;
    if (number == 0) stop_at_.reset();
    if (number != 0) (void)begin_grace(number);
  }

  // Returns whether the signal has a grace time, which begins with the first one.
  bool begin_grace(int number) {
    const bool has_grace = number == SIGTERM || number == SIGHUP;
    if (!has_grace || options_.stop_grace.count() <= 0) return false;
    if (stop_at_) return true;
    graceful_ = number;
    stop_at_ = Clock::now();
    return true;
  }

  void end_if_grace_is_over() {
    const std::chrono::duration<double> grace = std::min(options_.stop_grace, std::chrono::duration<double>(1e9));
    const Clock::time_point saved_at = last_saved();
    if (Clock::now() - std::max(*stop_at_, saved_at) < grace) return;
    const std::string ago = number_text(options_.stop_grace.count()) + " s ago";
    force_end(graceful_,
              (saved_at > *stop_at_ ? "came, a save after it ended " + ago + ", and" : "came " + ago + " and") +
                  " these ranks have not ended (trainer.stop_grace is how long they may take)");
  }

  // When a running rank saved last: now if one is saving.
  [[nodiscard]] Clock::time_point last_saved() const {
    int64_t last = 0;
    for (const Rank& rank : ranks_) {
      if (rank.running) last = std::max(last, pages_[rank.local_rank].last_saved());
    }
    return Clock::time_point(std::chrono::nanoseconds(last));
  }

  void force_end(int number, const std::string& why) {
    signal_all(SIGKILL);
    stop_at_.reset();
    if (std::exchange(forced_, number) != 0) return;
    std::string text = stop_signal_name(number) + " " + why + "; they are killed.";
    for (const Rank& rank : ranks_) {
      if (rank.running) text += "\n  " + place_of(rank);
    }
    Console::instance().error(text);
  }

  // Records the ranks that have ended; returns whether any is still running.
  bool collect() {
    bool running = false;
    for (Rank& rank : ranks_) {
      if (rank.running && ::waitpid(rank.pid, &rank.status, WNOHANG) == rank.pid) {
        rank.running = false;
        log::launcher.info("rank {} has ended with status {}", rank.rank, exit_status(rank.status));
        if (exit_status(rank.status) != 0 && comes_first(rank)) failed_ = &rank;
      }
      running = running || rank.running;
    }
    return running;
  }

  // Among ranks that ended with an error, one that was killed, or recorded its error first, caused the others' errors.
  [[nodiscard]] bool comes_first(const Rank& rank) const {
    if (failed_ == nullptr) return true;
    if (WIFSIGNALED(failed_->status)) return false;
    const int64_t one = pages_[rank.local_rank].failed_at;
    const int64_t other = pages_[failed_->local_rank].failed_at;
    return one != 0 && other != 0 && one < other;
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

  // Reports the errors of ranks that were requested to stop, which are mostly the same.
  void report_ends() const {
    std::vector<std::string> reported;
    for (const Rank& rank : ranks_) {
      const std::string text = pages_[rank.local_rank].reported_by_launcher != 0 ? error_of(rank) : "";
      if (text.empty() || std::find(reported.begin(), reported.end(), text) != reported.end()) continue;
      Console::instance().error(text);
      reported.push_back(text);
    }
  }

  [[nodiscard]] std::string error_of(const Rank& rank) const { return pages_[rank.local_rank].error_text(); }

  // The rank whose error the first failed rank only quotes ("rank 0: …"), otherwise that rank itself.
  [[nodiscard]] const Rank& first_cause() const {
    const std::string error = error_of(*failed_);
    for (const Rank& rank : ranks_) {
      const std::string own = error_of(rank);
      if (!own.empty() && own.size() < error.size() && error.find(own) != std::string::npos) return rank;
    }
    return *failed_;
  }

  void report_failure() const {
    const Rank& failed = first_cause();
    const RankPage& page = pages_[failed.local_rank];
    std::string text =
        "rank " + std::to_string(failed.rank) + " on " + host_name() + " (process " + std::to_string(failed.pid) + ") ";
    text += WIFSIGNALED(failed.status) ? "was killed by signal " + std::to_string(WTERMSIG(failed.status)) + " (" +
                                             strsignal(WTERMSIG(failed.status)) + ")"
                                       : "ended with status " + std::to_string(exit_status(failed.status));
    text += " " + page.text() + "." + memory_hint(failed.status);
    const std::string cause = error_of(failed);
    if (!cause.empty()) text += " Its error: " + cause;
    for (const Rank& rank : ranks_) {
      if (&rank == &failed) continue;
      text += "\n  " + place_of(rank);
      const std::string other = error_of(rank);
      const bool is_new = pages_[rank.local_rank].reported_by_launcher != 0 &&
                          (cause.empty() || other.find(cause) == std::string::npos);
      if (is_new) text += "; its error: " + other;
    }
    Console::instance().error(text);
  }

  // "rank 1 was in train, epoch 0, batch 12, 0.5 s ago"
  [[nodiscard]] std::string place_of(const Rank& rank) const {
    const RankPage& page = pages_[rank.local_rank];
    const int64_t moved_at = page.moved_at, now = monotonic_now();
    std::string text = "rank " + std::to_string(rank.rank) + " was " + page.text();
    if (moved_at > 0 && moved_at <= now) {
      text += ", " + number_text(std::round(static_cast<double>(now - moved_at) * 1e-8) / 10) + " s ago";
    }
    const std::string waiting = page.waiting_text();
    return waiting.empty() ? text : text + "; " + waiting;
  }

  LaunchOptions options_;
  RankPages pages_;
  const WriteErrorsScope writes_;  // a closed standard error must not end the launcher, and the ranks with it
  LauncherSignals signals_;
  StopRequests stops_;
  int64_t node_rank_ = 0;
  std::vector<Rank> ranks_;
  const Rank* failed_ = nullptr;              // the rank that failed first
  std::optional<Clock::time_point> stop_at_;  // the beginning of the grace time, with the signal `graceful_`
  int graceful_ = 0;
  bool own_grace_ = false;  // this process, not only a rank, received the signal
  int forced_ = 0;          // the signal after which ranks were killed
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
