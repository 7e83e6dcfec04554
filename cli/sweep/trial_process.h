// The process of a trial, "levin fit …", in a process group of its own: it outlives a sweep that is killed, and the
// next one finds it by its id and start time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/cli/sweep/sweep_store.h"

namespace levin {

/// How the process of a trial is started.
struct TrialCommand {
  std::vector<std::string> arguments = {};  // of the program, whose path comes first
  std::string folder = "";                  // where it runs
  std::string output = "";                  // file that both of its streams are appended to
  std::vector<std::pair<std::string, std::string>> variables = {};
  std::vector<int> cores = {};  // that it may use; empty: all that this process may use
};

/// The start time and the boot of a process, which identify it uniquely together with its id; "" if it does not exist.
[[nodiscard]] std::string process_name(int64_t pid);

/// Whether the process with this id still is the one of this name.
[[nodiscard]] bool is_alive(int64_t pid, const std::string& name);

/// Starts the command. `registered` gets the process's id and name before the program begins; if this process dies
/// meanwhile, or `registered` throws, the program never begins. Returns the id; throws Error.
int64_t start_trial(const TrialCommand& command, const std::function<void(int64_t, const std::string&)>& registered);

/// Ends the trial and all processes that it has started, at once.
void kill_trial(int64_t pid);

/// The exit status of a child that has ended (128 + N if signal N ended it); unset if it runs.
[[nodiscard]] std::optional<int> ended_child(int64_t pid);

/// The last lines of a file, at most `most`.
[[nodiscard]] std::vector<std::string> last_lines(const std::string& path, size_t most);

// --- How a trial is started: its arguments, its variables, and the cores and GPUs of its slot.

/// `program`: the levin tool. `alone`: the trial does not share the machine's cores and GPUs with others of the sweep.
/// Throws Error if CUDA_VISIBLE_DEVICES names fewer GPUs than the slots need.
[[nodiscard]] TrialCommand trial_command(const SweepStore& store, const std::string& program, const Trial& trial,
                                         bool alone);

}  // namespace levin
