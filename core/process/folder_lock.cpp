#include "levin/core/process/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "levin/core/files/files.h"
#include "levin/core/process/console.h"
#include "levin/core/process/stop_signal.h"
#include "levin/core/process/this_process.h"

namespace levin {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kBetweenAttempts(50);
constexpr milliseconds kBeforeANotice(1000);

// "2026-11-22 16:39:59 UTC"
std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text = {};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

int lock_now(int fd) {
  int result = ::flock(fd, LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR) result = ::flock(fd, LOCK_EX | LOCK_NB);
  return result;
}

}  // namespace

Error folder_in_use(const std::string& folder, const std::string& who) {
  return Error("the folder " + folder + " belongs to a run that is still alive: " + who +
               ". Two runs in one folder would mix their metrics and checkpoints. Stop that run or wait for its "
               "end, or give this one a folder of its own (another trainer.default_root_dir, or trainer.auto_resume: "
               "false).");
}

FolderLock::FolderLock(const std::string& folder, milliseconds patience)
    : folder_(folder), path_(folder + "/run.lock") {
  const auto start = steady_clock::now();
  bool told = false;
  while (true) {
    const Attempt result = attempt();
    if (result == Attempt::taken) {
      sign();
      return;
    }
    if (result == Attempt::impossible) {
      Console::instance().warn("nothing guards " + folder_ + " against a second run: cannot lock " + path_ + ": " +
                               obstacle_ + " Start no other run in this folder while this one lives.");
      return;
    }
    if (result == Attempt::moved) continue;  // the holder has just ended and removed its file
    const std::string who = holder();
    ::close(std::exchange(fd_, -1));
    if (steady_clock::now() - start >= patience) {
      throw folder_in_use(folder_, who);
    }
    if (!told && steady_clock::now() - start >= kBeforeANotice) {
      told = true;
      Console::instance().print("Waiting for the run in " + folder_ + " to end: " + who + ".");
    }
    if (const int number = stop_signal(); number != 0) throw Interrupted(number);
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

// Removed while the lock is held: a process that waits for this file notices that, and creates another.
FolderLock::~FolderLock() {
  if (fd_ < 0) return;
  ::unlink(path_.c_str());
  ::flock(fd_, LOCK_UN);  // a copy of the descriptor that a forked child has does not keep the lock
  ::close(fd_);
}

// The existing file cannot be trusted: a link is not followed, and only a plain file of this folder is written.
FolderLock::Attempt FolderLock::attempt() {
  try {
    make_folder(folder_);
  } catch (const Error& error) {
    obstacle_ = error.what();
    return Attempt::impossible;
  }
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  struct stat opened {};
  const auto fails = [this](const std::string& why) {
    obstacle_ = why + ".";
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    return Attempt::impossible;
  };
  if (fd_ < 0 || ::fstat(fd_, &opened) != 0) return fails(system_error_text(errno));
  if (!S_ISREG(opened.st_mode)) return fails("it is not a plain file");
  if (opened.st_nlink > 1) return fails("it is a second name of another file");
  if (lock_now(fd_) != 0) return errno == EWOULDBLOCK ? Attempt::held : fails(system_error_text(errno));
  struct stat there {};
  const bool same =
      ::lstat(path_.c_str(), &there) == 0 && there.st_dev == opened.st_dev && there.st_ino == opened.st_ino;
  if (same) return Attempt::taken;
  ::close(std::exchange(fd_, -1));
  return Attempt::moved;
}

// The lock works without these lines, so a full disk is not a problem.
void FolderLock::sign() const {
  const std::string text = host_name() + "\n" + std::to_string(::getpid()) + "\n" + now_text() + "\n";
  (void)!::ftruncate(fd_, 0);
  (void)!::pwrite(fd_, text.data(), text.size(), 0);
}

// Read from the file, which cannot be trusted.
std::string FolderLock::holder() const {
  std::array<char, 1024> buffer = {};
  const ssize_t got = ::pread(fd_, buffer.data(), buffer.size(), 0);
  std::istringstream stream(std::string(buffer.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))));
  std::vector<std::string> lines(3);
  for (std::string& line : lines) {
    std::getline(stream, line);
    if (line.empty()) return "an unknown process: run.lock does not name it";
    line = cut_text(line);
  }
  return "process " + lines[1] + " on " + lines[0] + ", since " + lines[2];
}

}  // namespace levin
