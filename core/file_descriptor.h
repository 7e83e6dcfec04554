// A file of the operating system: closed with its object, and written whole.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace levin {

/// Closes the descriptor, if it is one: -1 is what a failed open() returns.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  [[nodiscard]] int get() const { return fd_; }
  /// For a writer, to whom close() may report an error: its result, with errno.
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

/// Writes all of the text, at the file's position; false, with errno, if it cannot. A part may have been written then.
[[nodiscard]] inline bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(fd, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;  // by a signal handler
    if (done == 0) errno = ENOSPC;             // there is no room
    if (done <= 0) return false;
    text.remove_prefix(static_cast<size_t>(done));
  }
  return true;
}

}  // namespace levin
