// At most one process runs the trials of a sweep: a lock on FOLDER/sweep.lock, which the system releases when that
// process ends, however it ends.
#pragma once

#include <memory>
#include <string>

namespace levin {

class SweepLock {
 public:
  /// Throws Error naming the process that runs the sweep.
  explicit SweepLock(const std::string& folder);
  /// Null if another process holds it.
  [[nodiscard]] static std::unique_ptr<SweepLock> try_take(const std::string& folder);
  ~SweepLock();
  SweepLock(const SweepLock&) = delete;
  SweepLock& operator=(const SweepLock&) = delete;

  /// Whether a process runs the sweep.
  [[nodiscard]] static bool is_held(const std::string& folder);

 private:
  explicit SweepLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace levin
