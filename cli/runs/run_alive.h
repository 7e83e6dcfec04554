// Whether the process of a run is still there.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

/// Whether a process holds the lock (flock) of this file; not if there is no such file.
[[nodiscard]] bool is_file_locked(const std::string& path);

/// Whether another process holds the lock of this folder (core/folder_lock.h).
[[nodiscard]] bool is_folder_locked(const std::string& folder);

/// Whether process `pid` of this machine exists and began before `time` (seconds since 1970; nan: not asked): a number
/// that was given to another process since does not count.
[[nodiscard]] bool is_process_there(int64_t pid, double time);

/// Whether the process of a run that says it is running is there: process `pid` on this machine, the holder of the
/// folder's lock (also in another container), or, on another machine, a record that was `updated` in the last minute.
[[nodiscard]] bool is_run_alive(const std::string& folder, const std::string& host, int64_t pid, double updated);

}  // namespace levin
