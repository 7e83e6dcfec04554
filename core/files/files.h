// Reads and writes files: whole or not at all, with errors that name path and cause.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace levin {

/// An owned file descriptor, closed by the destructor. -1, which a failed open() returns, is allowed.
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
  /// Closes the file now and returns close()'s result, with errno: for writers, to whom close() may report an error.
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

/// Writes all of the text at the file's position. Returns false, with errno, on failure; a part may have been written.
[[nodiscard]] inline bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(fd, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;  // by a signal handler
    if (done == 0) errno = ENOSPC;             // the disk is full
    if (done <= 0) return false;
    text.remove_prefix(static_cast<size_t>(done));
  }
  return true;
}

// Resolves paths with links and "..". Nothing here throws: paths may come from a disk that others write to.

/// Returns true if the path has no NUL byte, at which the system would end it.
[[nodiscard]] inline bool has_no_nul(const std::string& path) {
  return path.find('\0') == std::string::npos;
}

/// Returns true if each part between "/" is a name: not empty, "." or "..".
[[nodiscard]] bool is_path_below(const std::string& path);

/// Returns the path made absolute and without "." and "..", without looking at the disk; unchanged if the working
/// directory no longer exists.
[[nodiscard]] std::string absolute_path(const std::string& path);

/// Returns true if `path` names something in `folder` or below it, after links and ".." are resolved: writing,
/// replacing or removing it changes nothing elsewhere. The last name is not followed, as a rename or a removal does not
/// follow it either. Returns false if this cannot be determined.
[[nodiscard]] bool is_inside(const std::string& path, const std::string& folder);

// Names from a run file that are joined to a folder must not lead out of it.

/// Throws ConfigError naming `option` if `name` leads out of the folder that it is joined to: if it is absolute or has
/// a part "..". `folder` is the option that chooses the folder.
void check_joined_name(const std::string& option, const std::string& name, const std::string& folder);

// Unfinished files have unpredictable names and a lock that is held exactly as long as their writer lives. Files of a
// killed process are recognized because their lock can be taken; a process id would mean nothing if the writer ran in
// a different container or on a different node.

/// Returns `path` with an unpredictable ending, for a file that is renamed to `path` when it is complete.
[[nodiscard]] std::string temporary_name(const std::string& path);

/// Returns true if `name` was created by temporary_name().
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

/// Returns the names in a folder; none if it cannot be read.
[[nodiscard]] std::vector<std::string> names_in(const std::string& folder);

/// Writes the parts, one after another, to a new file in the folder of `path`, syncs it, renames it to `path` and
/// syncs the folder: afterwards `path` holds the old content or the new, never a mix. A link is replaced, not followed.
/// Throws Error naming path, bytes and cause; the old file is then untouched and the new one removed. Returns the lock
/// on the new file, for writers of several files that belong together (remove_if_abandoned); otherwise drop it.
LockedFile write_file_durably(const std::string& path, std::span<const std::span<const std::byte>> parts);
LockedFile write_file_durably(const std::string& path, const std::string& content);

/// Writes to a path that a user has named, as a shell's redirection does: a device or a FIFO gets the content as a
/// stream, and a link stays, because the file that it leads to is written. Otherwise as write_file_durably.
void write_output(const std::string& path, const std::string& content);

/// Returns where the links at `path` lead, regardless of whether a file exists there; `path` itself if it is not a
/// link.
[[nodiscard]] std::string followed_links(const std::string& path);

/// Throws Error if the path names a device, a FIFO or a socket, which a file that is renamed to it would replace.
void check_replaceable(const std::string& path);

/// Opens a regular file with open(2)'s flags, for folders that others may write to: links are not followed, and FIFOs
/// are not waited for. Returns -1 if the file does not exist; throws Error naming path and cause for other failures.
[[nodiscard]] int open_regular_file(const std::string& path, int flags);

/// Reads a regular file, opened as above. Returns nothing if it does not exist; throws Error as read_file does.
[[nodiscard]] std::optional<std::string> read_regular_file(const std::string& path, uint64_t max_bytes = UINT64_MAX);

/// Syncs the file to the disk if it exists. Best effort: never throws.
void sync_file(const std::string& path);

/// Reads a regular file. Throws Error naming the path and cause, or the limit if the file exceeds `max_bytes`.
[[nodiscard]] std::string read_file(const std::string& path, uint64_t max_bytes = UINT64_MAX);

/// Reads a path that a user has named, which may also be a device or a FIFO (a FIFO is waited for). Throws as
/// read_file.
[[nodiscard]] std::string read_input(const std::string& path, uint64_t max_bytes = UINT64_MAX);

/// Creates the folder and its parents; throws Error naming path and cause.
void make_folder(const std::string& path);

/// Returns the text of an errno: "No space left on device".
[[nodiscard]] std::string system_error_text(int error_number);

}  // namespace levin
