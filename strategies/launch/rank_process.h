// A rank's process: how the launcher starts it, and how it ends with the launcher.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

namespace levin {

using Environment = std::map<std::string, std::string>;

/// This process's environment.
[[nodiscard]] Environment own_environment();

/// Starts this program again, with its arguments and `environment`; `not_inherited` is a descriptor that is closed in
/// it, -1: none. The process is killed if the calling thread ends before it. Throws Error if it cannot be started.
[[nodiscard]] pid_t start_rank_process(Environment environment, int not_inherited);

/// Whether this process is a rank that Levin's own launcher has started.
[[nodiscard]] bool launched_by_levin();

/// Set by the launcher, in addition to OMP_NUM_THREADS, to the rank's number of cores.
inline constexpr const char* kThreadShare = "LEVIN_THREAD_SHARE";

/// Whether OMP_NUM_THREADS was set by a user or another launcher, rather than by Levin's launcher.
[[nodiscard]] bool threads_are_set_outside();

/// In such a rank: requests again to be killed when the launcher ends (exec may cancel the first request), and ends at
/// once if the launcher has already ended.
void stay_with_launcher();

}  // namespace levin
