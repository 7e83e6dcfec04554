// What this process was started as and where it runs: environment variables, command line, machine,
// Slurm job; and the time of day.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace levin {

// Environment variables, passed as a function, so that tests can pass others.

/// Returns an environment variable's value; unset if there is none.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

/// Returns the variables of this process; an empty one counts as unset.
[[nodiscard]] Variables process_variables();

// What this process was started as, and where it runs.

/// Returns the program and its arguments; empty without /proc.
[[nodiscard]] std::vector<std::string> own_command_line();

/// Returns own_command_line() as one string, with spaces between.
[[nodiscard]] std::string own_command_text();

/// Returns the name of this machine; "" if it has none.
[[nodiscard]] std::string host_name();

/// Returns the folder of this user for files that can be made again: $XDG_CACHE_HOME/levin/NAME or ~/.cache/levin/NAME;
/// without a home, a folder of this user in the folder for temporary files. Creates nothing.
[[nodiscard]] std::string user_cache_folder(const std::string& name);

/// The Slurm job that this process runs in.
struct SlurmJob {
  std::string id = "";   // what scontrol calls it: "12345"; of an array "12345_2"
  int64_t restarts = 0;  // how often Slurm has requeued it
};

/// Returns the job, or nothing outside of Slurm and in an interactive allocation. A job with an invalid number is
/// ignored: it must not reach scontrol.
[[nodiscard]] std::optional<SlurmJob> slurm_job(const Variables& variables);

/// Returns true if the job's name marks an interactive job (bash or interactive).
[[nodiscard]] bool is_interactive_slurm(const Variables& variables);

// The time of day as a number, for records that other programs read.

[[nodiscard]] inline double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace levin
