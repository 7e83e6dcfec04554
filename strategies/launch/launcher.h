// Starts this program again, once for every local rank, and watches over them: no Python and no scheduler needed.
// The process that launches trains nothing. A rank that dies ends the job, or restarts all ranks; if the launcher
// dies, its ranks die with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace levin {

struct LaunchOptions {
  int64_t local_ranks = 1;
  int64_t num_nodes = 1;
  int64_t max_restarts = 0;
  std::chrono::milliseconds grace = std::chrono::milliseconds(3000);    // for the others, once one has failed
  std::chrono::duration<double> stop_grace = std::chrono::seconds(25);  // after SIGTERM or SIGHUP; 0: no limit
};

/// Runs `options.local_ranks` processes with this one's program and arguments to their end. With several nodes,
/// NODE_RANK, MASTER_ADDR and MASTER_PORT must say where this one is. Returns the exit status to end with: 0 if
/// all ranks ended with 0, else that of the first that failed (128 + signal if it was killed), which is named on
/// standard error. Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 are handed on to the ranks. Ranks that still run when the grace
/// time after SIGTERM or SIGHUP, to this process or to one of them, is over (unless they are saving), or when Ctrl-C,
/// SIGTERM or SIGHUP comes again, are killed, and the status is 128 + that signal. Throws ConfigError, or Error if a
/// process cannot be started.
[[nodiscard]] int launch(const LaunchOptions& options);

/// How often the launcher, ours or torchrun, has started this rank again; 0 for the first time, and without a launcher.
[[nodiscard]] int64_t restarts_so_far();

/// A listening socket that the launcher has opened for rank 0's store, so that no other program can take the port in
/// between; -1: none.
[[nodiscard]] int inherited_store_socket();

/// Whether the store that ranks meet at is torchrun's own process, so that rank 0 must not open one.
[[nodiscard]] bool launcher_keeps_store();

}  // namespace levin
