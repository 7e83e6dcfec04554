// Files that are not finished yet: names that cannot be predicted, and a lock that lives exactly as long as their
// writer. What a killed process left is known by its lock, which can be taken; a process id would say nothing where
// another container or another machine has written.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// `path` with an ending that cannot be foreseen, for a file that is renamed to `path` when it is whole.
[[nodiscard]] std::string temporary_name(const std::string& path);

/// Whether a file's name is one of those.
[[nodiscard]] bool is_temporary_name(const std::string& name);

/// A file that its writer has locked (flock). The lock goes with the object, and with the process however that ends;
/// programs that the process starts do not inherit it.
class LockedFile {
 public:
  LockedFile() = default;
  ~LockedFile();
  LockedFile(LockedFile&& other) noexcept;
  LockedFile& operator=(LockedFile&& other) noexcept;

  /// Creates the file, which must not be there, not as a link either, and locks it. Empty, with errno, if it cannot.
  /// On a file system without locks it goes without: what is left there is never known to be dead.
  [[nodiscard]] static LockedFile create(const std::string& path);

  /// Locks a regular file whose writer is gone; empty if it lives, or if that cannot be found out.
  [[nodiscard]] static LockedFile take_over(const std::string& path);

  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  explicit LockedFile(int fd) : fd_(fd) {}

  int fd_ = -1;
};

/// Removes what killed writers have left half written in the folder.
void remove_leftovers(const std::string& folder);

/// Removes files that one writer made together, unless it still has one of them locked.
void remove_if_abandoned(const std::vector<std::string>& paths);

/// The names in a folder, none if it cannot be read.
[[nodiscard]] std::vector<std::string> names_in(const std::string& folder);

}  // namespace levin
