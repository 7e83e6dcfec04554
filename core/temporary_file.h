// Unfinished files: with unpredictable names, and a lock that is held exactly as long as their writer lives. Files of a
// killed process are recognized because their lock can be taken; a process id would mean nothing if the writer was in
// another container or on another machine.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// `path` with an unpredictable ending, for a file that is renamed to `path` when it is complete.
[[nodiscard]] std::string temporary_name(const std::string& path);

/// Whether a file's name is one of those.
[[nodiscard]] bool is_temporary_name(const std::string& name);

/// A file that its writer has locked (flock). The lock is released with the object, and when the process ends in any
/// way; child programs do not inherit it.
class LockedFile {
 public:
  LockedFile() = default;
  ~LockedFile();
  LockedFile(LockedFile&& other) noexcept;
  LockedFile& operator=(LockedFile&& other) noexcept;

  /// Creates the file, which must not exist, not even as a link, and locks it. Empty, with errno, if it cannot.
  /// On a file system without locks it does without: leftovers there are never recognized.
  [[nodiscard]] static LockedFile create(const std::string& path);

  /// Locks a regular file whose writer is gone; empty if it is alive, or if that is unknown.
  [[nodiscard]] static LockedFile take_over(const std::string& path);

  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  explicit LockedFile(int fd) : fd_(fd) {}

  int fd_ = -1;
};

/// Removes half-written files of killed writers in the folder.
void remove_leftovers(const std::string& folder);

/// Removes files that one writer made together, unless it still has one of them locked.
void remove_if_abandoned(const std::vector<std::string>& paths);

/// The names in a folder, none if it cannot be read.
[[nodiscard]] std::vector<std::string> names_in(const std::string& folder);

}  // namespace levin
