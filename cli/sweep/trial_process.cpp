#include "levin/cli/sweep/trial_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>

#include "levin/cli/runs/process_stat.h"
#include "levin/core/error.h"
#include "levin/core/file_descriptor.h"
#include "levin/core/files.h"
#include "levin/strategies/launch/launcher_signals.h"

extern char** environ;

namespace levin {

namespace {

// The variables of this process with those of the trial, and without those that tell a rank its place.
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

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Everything that the child does, prepared before the fork: afterwards only calls that are safe for signals.
struct Prepared {
  char** words = nullptr;
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
  if (::chdir(prepared.folder) == 0) ::execve(prepared.words[0], prepared.words, prepared.variables);
  constexpr char kText[] = "error: the trial's program cannot be started.\n";
  (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
  ::_exit(127);
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
  std::vector<std::string> words = command.words;
  std::vector<std::string> variables = variables_of(command);
  std::vector<char*> word_pointers = pointers_to(words);
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
      become_trial({word_pointers.data(), variable_pointers.data(), command.folder.c_str(), output.get(), ends[0],
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

}  // namespace levin
