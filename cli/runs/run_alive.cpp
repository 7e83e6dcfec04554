#include "levin/cli/runs/run_alive.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cmath>
#include <csignal>
#include <ctime>
#include <fstream>
#include <sstream>

#include "levin/core/process/this_process.h"

namespace levin {

namespace {

constexpr double kClockSlack = 5;    // seconds between a process's start as the kernel counts it and as it says
constexpr double kSilentAfter = 60;  // of a run on a different machine, which updates its record every second

// Seconds since 1970; nan where the kernel does not say.
double start_time(const ProcessStat& stat) {
  std::timespec up{};
  if (::clock_gettime(CLOCK_BOOTTIME, &up) != 0) return std::nan("");
  const double since_boot = std::strtod(stat.start.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return seconds_since_1970() - (static_cast<double>(up.tv_sec) + 1e-9 * static_cast<double>(up.tv_nsec)) + since_boot;
}

}  // namespace

std::optional<ProcessStat> process_stat(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text, '\0')) return std::nullopt;
  const size_t name_end = text.rfind(')');  // the program's name may contain anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessStat stat;
  for (int field = 3; field <= 22; ++field) {
    if (!(fields >> stat.start)) return std::nullopt;
    if (field == 3) stat.ended = stat.start == "Z" || stat.start == "X";
  }
  return stat;
}

// A shared lock, for an instant: a process that takes the lock at just this moment tries again.
bool is_file_locked(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  struct stat found {};
  const bool plain = ::fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
  const bool held = plain && ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return held;
}

bool is_folder_locked(const std::string& folder) {
  return is_file_locked(folder + "/run.lock");
}

bool is_process_there(int64_t pid, double time) {
  if (pid <= 0 || pid > INT_MAX) return false;
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno != EPERM) return false;
  const auto stat = process_stat(pid);
  return !stat || (!stat->ended && !(start_time(*stat) > time + kClockSlack));
}

bool is_run_alive(const std::string& folder, const std::string& host, int64_t pid, double updated) {
  const bool here = host == host_name();
  if (here && is_process_there(pid, updated)) return true;
  if (is_folder_locked(folder)) return true;
  return !here && seconds_since_1970() - updated < kSilentAfter;
}

}  // namespace levin
