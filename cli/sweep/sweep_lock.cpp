#include "levin/cli/sweep/sweep_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "levin/cli/runs/run_alive.h"
#include "levin/core/error.h"
#include "levin/core/files.h"

namespace levin {

namespace {

std::string lock_file(const std::string& folder) {
  return folder + "/sweep.lock";
}

int open_lock(const std::string& path) {
  const int fd = open_regular_file(path, O_RDWR | O_CREAT);
  if (fd < 0) throw Error("sweep: cannot write " + path + ": " + system_error_text(errno) + ".");
  return fd;
}

// A child that has not begun its program yet holds a copy of the lock for a moment.
bool lock_within_a_second(int fd) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    ::usleep(50'000);
  }
  return false;
}

}  // namespace

SweepLock::SweepLock(const std::string& folder) {
  const std::string path = lock_file(folder);
  fd_ = open_lock(path);
  if (!lock_within_a_second(fd_)) {
    ::close(fd_);
    std::string holder;
    std::ifstream(path) >> holder;
    throw Error("the sweep in " + folder + " is being run by process " + holder +
                ". Wait for its end, or stop it with Ctrl-C; levin sweep status " + folder + " shows how far it is.");
  }
  const std::string text = std::to_string(::getpid()) + "\n";
  (void)!::ftruncate(fd_, 0);
  (void)!::write(fd_, text.data(), text.size());
}

std::unique_ptr<SweepLock> SweepLock::try_take(const std::string& folder) {
  const int fd = open_lock(lock_file(folder));
  std::unique_ptr<SweepLock> lock(new SweepLock(fd));  // closes it in any case
  return ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? std::move(lock) : nullptr;
}

SweepLock::~SweepLock() {
  ::close(fd_);
}

bool SweepLock::is_held(const std::string& folder) {
  return is_file_locked(lock_file(folder));
}

}  // namespace levin
