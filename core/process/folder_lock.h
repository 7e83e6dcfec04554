// Ensures one active run per folder: a lock on the file run.lock in it, which the system releases when its process
// ends, however it ends. The file names the holder, and is removed with the lock.
#pragma once

#include <chrono>
#include <string>

#include "levin/core/options/error.h"

namespace levin {

/// Returns the error of a folder that a run uses; `who`: its process and machine.
[[nodiscard]] Error folder_in_use(const std::string& folder, const std::string& who);

/// Holds the lock of a folder for its lifetime. For rank 0; not thread-safe.
class FolderLock {
 public:
  /// Locks the folder, which is created if necessary. Waits up to `patience` for a holder that is about to end; then
  /// throws Error naming the folder and the holder's process, machine and start. Throws Interrupted if a stop signal
  /// arrives meanwhile. Warns that the folder is not protected if the file system has no locks, or if the file cannot
  /// be created.
  FolderLock(const std::string& folder, std::chrono::milliseconds patience);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  /// Returns false if the folder is not protected.
  [[nodiscard]] bool is_held() const { return fd_ >= 0; }

 private:
  enum class Attempt { taken, held, moved, impossible };
  Attempt attempt();
  [[nodiscard]] std::string holder() const;
  void sign() const;

  std::string folder_;
  std::string path_;
  int fd_ = -1;
  std::string obstacle_ = "";  // why the folder could not be locked
};

}  // namespace levin
