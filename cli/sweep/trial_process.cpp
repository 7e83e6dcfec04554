#include "levin/cli/sweep/trial_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "levin/cli/runs/run_alive.h"
#include "levin/cli/sweep/trial_result.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/this_process.h"
#include "levin/strategies/launch/launcher_signals.h"

extern char** environ;

namespace levin {

namespace fs = std::filesystem;

namespace {

// This process's environment with the trial's variables, and without the variables of an enclosing trial.
std::vector<std::string> variables_of(const TrialCommand& command) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    bool replaced = name.starts_with("LEVIN_STOP_AFTER") || name.starts_with("LEVIN_RESULT_FILE");
    for (const auto& [own, value] : command.variables) replaced = replaced || own == name;
    if (!replaced) all.push_back(text);
  }
  for (const auto& [name, value] : command.variables) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (auto& each : strings) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Everything that the child does, prepared before the fork: afterwards only calls that are safe for signals.
struct Prepared {
  char** arguments = nullptr;
  char** variables = nullptr;
  const char* folder = nullptr;
  int output = -1;
  int go = -1;  // one byte arrives when the process is registered; none if the parent has died
  const cpu_set_t* cores = nullptr;
};

[[noreturn]] void become_trial(const Prepared& prepared) {
  ::setpgid(0, 0);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGPIPE}) {
    ::signal(number, SIG_DFL);  // a shell's background job ignores Ctrl-C, and a trial is stopped by it
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  char byte = 0;
  ssize_t got = ::read(prepared.go, &byte, 1);
  while (got < 0 && errno == EINTR) got = ::read(prepared.go, &byte, 1);
  if (got != 1) ::_exit(127);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(prepared.output, STDOUT_FILENO);
  ::dup2(prepared.output, STDERR_FILENO);
  if (prepared.cores != nullptr) ::sched_setaffinity(0, sizeof(cpu_set_t), prepared.cores);
  if (::chdir(prepared.folder) == 0) ::execve(prepared.arguments[0], prepared.arguments, prepared.variables);
  constexpr char kText[] = "error: the trial's program cannot be started.\n";
  (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
  ::_exit(127);
}

std::vector<int> cores_of_this_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

// "2,3" for slot 1 of two GPUs each: of the GPUs that this process sees.
std::string gpus_of_slot(int64_t slot, int64_t count, int64_t slots) {
  std::vector<std::string> all;
  if (const auto listed = process_variables()("CUDA_VISIBLE_DEVICES")) {
    all = split(*listed, ',');
    if (std::ssize(all) < count * slots) {
      throw Error("sweep: slots: " + std::to_string(slots) + " with gpus_per_slot: " + std::to_string(count) +
                  " need " + count_of(count * slots, "GPU") + ", and CUDA_VISIBLE_DEVICES names " +
                  std::to_string(all.size()) + ". Lower one of them.");
    }
  } else {
    for (int64_t gpu = 0; gpu < count * slots; ++gpu) all.push_back(std::to_string(gpu));
  }
  std::string text;
  for (int64_t k = 0; k < count; ++k) text += (k == 0 ? "" : ",") + all[static_cast<size_t>(slot * count + k)];
  return text;
}

}  // namespace

std::string process_name(int64_t pid) {
  const auto stat = process_stat(pid);
  if (!stat || stat->ended) return "";
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return stat->start + "@" + boot;
}

bool is_alive(int64_t pid, const std::string& name) {
  return pid > 0 && !name.empty() && process_name(pid) == name;
}

int64_t start_trial(const TrialCommand& command, const std::function<void(int64_t, const std::string&)>& registered) {
  std::vector<std::string> arguments = command.arguments;
  std::vector<std::string> variables = variables_of(command);
  std::vector<char*> argument_pointers = pointers_to(arguments);
  std::vector<char*> variable_pointers = pointers_to(variables);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : command.cores) CPU_SET(static_cast<size_t>(core), &cores);
  const FileDescriptor output(open_regular_file(command.output, O_WRONLY | O_CREAT | O_APPEND));
  if (!output) throw Error("sweep: cannot write " + command.output + ": its folder is gone.");
  std::array<int, 2> ends = {-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Error("sweep: no pipe: " + system_error_text(errno) + ".");
  pid_t pid = -1;
  int fork_problem = 0;
  {
    const BlockedSignals blocked;  // the child has this process's handlers until it restores the default ones
    pid = ::fork();
    if (pid == 0) {
      ::close(ends[1]);  // else the child would wait for itself
      become_trial({argument_pointers.data(), variable_pointers.data(), command.folder.c_str(), output.get(), ends[0],
                    command.cores.empty() ? nullptr : &cores});
    }
    fork_problem = errno;
    if (pid > 0) ::setpgid(pid, pid);  // as the child does: whichever comes first
  }
  ::close(ends[0]);
  if (pid < 0) {
    ::close(ends[1]);
    throw Error("sweep: no process for a trial: " + system_error_text(fork_problem) + ".");
  }
  try {
    registered(pid, process_name(pid));
  } catch (...) {
    ::close(ends[1]);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw;
  }
  const char byte = 1;
  (void)!::write(ends[1], &byte, 1);
  ::close(ends[1]);
  return pid;
}

void kill_trial(int64_t pid) {
  ::kill(-static_cast<pid_t>(pid), SIGKILL);
}

std::optional<int> ended_child(int64_t pid) {
  int status = 0;
  const pid_t got = ::waitpid(static_cast<pid_t>(pid), &status, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return std::nullopt;
  if (got < 0) return 127;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::vector<std::string> last_lines(const std::string& path, size_t most) {
  constexpr std::streamoff kBytes = 16 << 10;
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  if (!file || size <= 0) return {};
  file.seekg(size > kBytes ? size - kBytes : 0);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
  return lines;
}

TrialCommand trial_command(const SweepStore& store, const std::string& program, const Trial& trial, bool alone) {
  const SweepOptions& options = store.options();
  const std::string folder = store.trial_folder(trial.id);
  TrialCommand command;
  command.arguments = {program, "fit", "--config", (fs::path(store.folder()) / "run.yaml").string()};
  for (const auto& [path, value] : trial.parameters) command.arguments.push_back("--" + path + "=" + value);
  for (const auto& word : {"--trainer.default_root_dir=" + folder, std::string("--trainer.auto_resume=true"),
                           std::string("--trainer.enable_progress_bar=false"), std::string("--test_after_fit=false")}) {
    command.arguments.push_back(word);
  }
  command.folder = store.plan().working_folder;
  command.output = (fs::path(folder) / "output.log").string();
  const std::vector<int> cores = cores_of_this_process();
  const int64_t usable = std::max<int64_t>(1, std::ssize(cores));
  const int64_t slots = alone ? 1 : options.slots;
  const int64_t slot = alone ? 0 : trial.slot;
  const int64_t each = options.cores_per_slot > 0 ? options.cores_per_slot : std::max<int64_t>(1, usable / slots);
  if (each <= usable / slots && slots > 1) {
    for (int64_t k = 0; k < each; ++k) command.cores.push_back(cores[static_cast<size_t>(slot * each + k)]);
  }
  command.variables = {{"OMP_NUM_THREADS", std::to_string(each)}, {"LEVIN_RESULT_FILE", result_file(store, trial)}};
  if (trial.target > 0) {
    const std::string unit = options.search.resource == Resource::epochs ? "epoch=" : "step=";
    command.variables.emplace_back("LEVIN_STOP_AFTER", unit + std::to_string(trial.target));
  }
  if (options.gpus_per_slot > 0) {
    command.variables.emplace_back("CUDA_VISIBLE_DEVICES", gpus_of_slot(slot, options.gpus_per_slot, slots));
  }
  return command;
}

}  // namespace levin
