#include "levin/strategies/launch/rank_process.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/process/this_process.h"
#include "levin/strategies/launch/launcher_signals.h"

extern char** environ;

namespace levin {

namespace {

constexpr const char* kLauncher = "LEVIN_LAUNCHER_PID";

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (auto& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Environment own_environment() {
  Environment all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return all;
}

pid_t start_rank_process(Environment environment, int not_inherited) {
  const pid_t launcher = ::getpid();
  environment["LEVIN_LAUNCHED"] = "1";
  environment[kLauncher] = std::to_string(launcher);
  std::vector<std::string> arguments = own_command_line();
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);
  const BlockedSignals blocked;
  const pid_t pid = ::fork();
  if (pid < 0) throw Error(std::string("launching ranks: cannot start a process: ") + std::strerror(errno) + ".");
  if (pid > 0) return pid;
  // In the child only system calls are allowed until exec.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(127);  // the launcher died before prctl
  LauncherSignals::forget_in_child();
  blocked.restore();
  if (not_inherited >= 0) ::close(not_inherited);
  ::execve("/proc/self/exe", argv.data(), envp.data());
  ::_exit(127);
}

bool launched_by_levin() {
  return std::getenv("LEVIN_LAUNCHED") != nullptr;
}

bool threads_are_set_outside() {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  const char* share = std::getenv(kThreadShare);
  return threads != nullptr && *threads != '\0' && (share == nullptr || std::string(threads) != share);
}

void stay_with_launcher() {
  const char* launcher = std::getenv(kLauncher);
  if (launcher == nullptr) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != std::atoi(launcher)) std::raise(SIGKILL);
}

}  // namespace levin
