// Starts this program again, once for every local rank, and monitors the ranks: neither Python nor a scheduler is
// needed. The launcher process does not train. If a rank dies, the job ends or all ranks are restarted; if the launcher
// dies, its ranks are killed.
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

/// Runs `options.local_ranks` processes with this one's program and arguments until they end. With several nodes,
/// NODE_RANK, MASTER_ADDR and MASTER_PORT must be set. Returns the exit status to end with: 0 if all ranks ended with
/// 0, otherwise the status of the first that failed (128 + signal if it was killed), which is named on standard error.
/// Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 are forwarded to the ranks. Ranks that are still running when the grace time
/// after SIGTERM or SIGHUP, to this process or to one of them, or after the last save since, is over, or when Ctrl-C,
/// SIGTERM or SIGHUP comes again, are killed, and the status is 128 + that signal. Throws ConfigError, or Error if a
/// process cannot be started.
[[nodiscard]] int launch(const LaunchOptions& options);

/// How many times the launcher, Levin's or torchrun, has restarted this rank; 0 without a launcher.
[[nodiscard]] int64_t restarts_so_far();

/// A listening socket that the launcher has opened for rank 0's store, so that no other program can take the port in
/// the meantime; -1: none.
[[nodiscard]] int inherited_store_socket();

/// Whether the ranks' rendezvous store is in torchrun's own process, so that rank 0 must not open one.
[[nodiscard]] bool launcher_keeps_store();

}  // namespace levin
