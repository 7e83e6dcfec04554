// Whether the process of a run is still there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace levin {

// --- What the kernel says about a process in /proc/PID/stat.

/// The state of a process in /proc/PID/stat.
struct ProcessStat {
  bool ended = false;  // and its parent has not noticed yet
  std::string start;   // clock ticks after the machine's start
};

/// Returns nothing if the process, or /proc, does not exist.
[[nodiscard]] std::optional<ProcessStat> process_stat(int64_t pid);

/// Whether a process holds the lock (flock) of this file; false if the file does not exist.
[[nodiscard]] bool is_file_locked(const std::string& path);

/// Whether another process holds the lock of this folder (core/process/folder_lock.h).
[[nodiscard]] bool is_folder_locked(const std::string& folder);

/// Whether process `pid` of this machine exists and began before `time` (seconds since 1970; nan: not asked): a number
/// that was given to another process since does not count.
[[nodiscard]] bool is_process_there(int64_t pid, double time);

/// Whether the process of a run with status running exists: process `pid` on this machine, or a process that holds the
/// folder's lock (also in a different container); on a different machine, whether its record was `updated` in the last
/// minute.
[[nodiscard]] bool is_run_alive(const std::string& folder, const std::string& host, int64_t pid, double updated);

}  // namespace levin
