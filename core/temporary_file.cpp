#include "levin/core/temporary_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <random>
#include <regex>
#include <utility>

namespace levin {

namespace fs = std::filesystem;

namespace {

uint64_t unforeseeable_number() {
  uint64_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) == sizeof number) return number;
  std::random_device device;  // a kernel without the call, or just started
  return uint64_t{device()} << 32 | device();
}

// Whether the path still names the open file: it may have been removed before it was locked.
bool still_names(const char* path, int fd) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path, &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

int locked(int fd) {
  int result = ::flock(fd, LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR) result = ::flock(fd, LOCK_EX | LOCK_NB);
  return result;
}

}  // namespace

std::string temporary_name(const std::string& path) {
  char number[17];
  std::snprintf(number, sizeof number, "%016llx", static_cast<unsigned long long>(unforeseeable_number()));
  return path + ".tmp-" + number;
}

bool is_temporary_name(const std::string& name) {
  // The second form: older names, with process id and number.
  static const std::regex names(R"([\s\S]+\.tmp-([0-9a-f]{16}|[0-9]{1,9}(-[0-9]+)?))");
  return name.size() <= 255 && std::regex_match(name, names);
}

LockedFile::~LockedFile() {
  if (fd_ >= 0) ::close(fd_);
}

LockedFile::LockedFile(LockedFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

LockedFile& LockedFile::operator=(LockedFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

LockedFile LockedFile::create(const std::string& path) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return {};
  LockedFile file(fd);
  const bool taken = locked(fd) != 0 && errno == EWOULDBLOCK;  // a cleaner was quicker, and removes it
  if (!taken && still_names(path.c_str(), fd)) return file;
  errno = EAGAIN;
  return {};
}

LockedFile LockedFile::take_over(const std::string& path) {
  constexpr int flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  int fd = ::open(path.c_str(), O_RDWR | flags);  // network file systems require write access for a lock
  if (fd < 0) fd = ::open(path.c_str(), O_RDONLY | flags);
  if (fd < 0) return {};
  LockedFile file(fd);
  struct stat info {};
  const bool is_file = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (!is_file || locked(fd) != 0 || !still_names(path.c_str(), fd)) return {};
  return file;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code code;
  fs::directory_iterator entry(folder, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void remove_if_abandoned(const std::vector<std::string>& paths) {
  std::vector<LockedFile> files;
  for (const std::string& path : paths) {
    files.push_back(LockedFile::take_over(path));
    std::error_code code;
    if (!files.back() && fs::exists(fs::symlink_status(path, code))) return;
  }
  for (const std::string& path : paths) (void)::unlink(path.c_str());
}

void remove_leftovers(const std::string& folder) {
  for (const std::string& name : names_in(folder)) {
    if (!is_temporary_name(name)) continue;
    const std::string path = (fs::path(folder) / name).string();
    std::error_code code;
    // A link cannot be locked, and keeps its name only briefly: its creator tries again.
    if (fs::is_symlink(fs::symlink_status(path, code))) (void)::unlink(path.c_str());
    remove_if_abandoned({path});
  }
}

}  // namespace levin
