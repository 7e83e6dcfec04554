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

#include "levin/core/this_process.h"
#include "levin/core/wall_clock.h"

namespace levin {

namespace {

constexpr double kClockSlack = 5;    // seconds between a process's start as the kernel counts it and as it says
constexpr double kSilentAfter = 60;  // of a run on another machine, which updates its record every second

struct Process {
  bool ended = false;           // and its parent has not noticed yet
  double start = std::nan("");  // seconds since 1970
};

// The name in /proc/PID/stat may contain anything.
Process process_of(int64_t pid) {
  Process process;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text, '\0')) return process;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return process;
  std::istringstream words(text.substr(name_end + 1));
  std::string word;
  for (int field = 3; field <= 22; ++field) {
    if (!(words >> word)) return process;
    if (field == 3) process.ended = word == "Z" || word == "X";
  }
  std::timespec up{};
  if (::clock_gettime(CLOCK_BOOTTIME, &up) != 0) return process;
  const double since_boot = std::strtod(word.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  process.start =
      seconds_since_1970() - (static_cast<double>(up.tv_sec) + 1e-9 * static_cast<double>(up.tv_nsec)) + since_boot;
  return process;
}

}  // namespace

// A shared lock, for an instant: a run that starts at just this moment waits for it.
bool is_folder_locked(const std::string& folder) {
  const std::string path = folder + "/run.lock";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  struct stat found {};
  const bool plain = ::fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
  const bool held = plain && ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return held;
}

bool is_process_there(int64_t pid, double time) {
  if (pid <= 0 || pid > INT_MAX) return false;
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno != EPERM) return false;
  const Process process = process_of(pid);
  return !process.ended && !(process.start > time + kClockSlack);
}

bool is_run_alive(const std::string& folder, const std::string& host, int64_t pid, double updated) {
  const bool here = host == host_name();
  if (here && is_process_there(pid, updated)) return true;
  if (is_folder_locked(folder)) return true;
  return !here && seconds_since_1970() - updated < kSilentAfter;
}

}  // namespace levin
