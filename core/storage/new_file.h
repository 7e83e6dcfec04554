// A local file that gets its name when it is complete.
#pragma once

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>

#include "levin/core/files/files.h"

namespace levin {

/// A temporary file in the folder of `path`, locked while this process lives, and removed unless finish() has renamed
/// it. Failures are reported by error(), an errno.
class NewFile {
 public:
  /// Creates the folder too, for which it throws Error.
  explicit NewFile(std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  [[nodiscard]] bool write(std::span<const std::byte> bytes);
  /// Begins anew, with an empty file.
  [[nodiscard]] bool clear();
  /// Renames the file to its path, after syncing it if `sync`. `replace`: a file with this name is replaced; otherwise
  /// it is kept, and the error is EEXIST.
  [[nodiscard]] bool finish(bool sync, bool replace = true);

  /// Returns the temporary name; "" once the file has its own.
  [[nodiscard]] const std::string& temporary_path() const { return temporary_; }
  /// Returns the last failure; 0 if there was none. The constructor may have failed.
  [[nodiscard]] int error() const { return error_; }

 private:
  bool succeeded(bool success);

  std::string path_;
  std::string temporary_;  // "": has its name
  LockedFile file_;
  int error_ = 0;
};

}  // namespace levin
