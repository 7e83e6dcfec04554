// A folder with copies of shards that lie elsewhere, shared by all processes of a user on one machine.
//
//   ShardCache cache("/scratch/levin", uint64_t{100} << 30);
//   const auto file = cache.get("5f3a…", [&](const std::string& path) { store->fetch(key, path); });
//   const MappedFile bytes(file->path());   // `file` keeps it from being removed
//
// Note [Locks of a cache]
// Everything that processes must agree on is a lock of one byte of the file `locks`, which the system releases when a
// process ends, however it ends: there is a byte for a file that is being made, one for a file in use, and one for
// making room. A killed process therefore leaves neither a lock that others wait for nor a file that they take for
// complete: files get their names when they are complete, and the names of all others have ".part" in them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "levin/core/files/files.h"

namespace levin {

/// A file that stays in its cache as long as this object exists.
class CachedFile {
 public:
  CachedFile(std::string path, std::unique_ptr<FileDescriptor> in_use)
      : path_(std::move(path)), in_use_(std::move(in_use)) {}
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::unique_ptr<FileDescriptor> in_use_;  // with a lock; closing it releases the lock
};

/// The copies, of at most `max_bytes` together. The least recently used are removed first.
/// Thread-safe, and safe for any number of processes.
class ShardCache {
 public:
  /// Writes the whole file to `path`, or throws.
  using Make = std::function<void(const std::string& path)>;

  /// Creates the folder, for this user alone, and removes what killed processes have left unfinished. Throws DataError
  /// naming the folder if it cannot be written.
  ShardCache(std::string folder, uint64_t max_bytes);

  /// Returns the file `name`, which `make` makes if it is not there; if another thread or process is making it, waits.
  /// Files in use are not removed: if they fill the cache, it becomes larger than max_bytes, with a warning. `bytes`:
  /// the size that the file will have; 0: unknown. Throws what `make` throws, and DataError if `abandoned` becomes
  /// true.
  [[nodiscard]] std::shared_ptr<const CachedFile> get(const std::string& name, uint64_t bytes, const Make& make,
                                                      const std::atomic<bool>* abandoned = nullptr);

  /// Makes the file `name` ahead of its use. Does nothing and returns false if another thread or process is making it,
  /// or if the files in use leave no room.
  bool bring(const std::string& name, uint64_t bytes, const Make& make);

  /// Returns the file `name` if it is there, else null.
  [[nodiscard]] std::shared_ptr<const CachedFile> find(const std::string& name);

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] uint64_t max_bytes() const { return max_bytes_; }

 private:
  [[nodiscard]] std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] std::unique_ptr<FileDescriptor> open_locks() const;
  [[nodiscard]] bool make_room(uint64_t bytes, bool may_exceed);
  void make_file(const std::string& name, uint64_t bytes, const Make& make);
  void remove_unfinished();

  std::string folder_;
  uint64_t max_bytes_;
  std::atomic<bool> warned_ = false;
};

/// The size of a cache unless another one is chosen.
inline constexpr uint64_t kShardCacheBytes = uint64_t{100} << 30;

/// Returns the folder for copies of shards unless another one is chosen: user_cache_folder("streams").
[[nodiscard]] std::string default_shard_cache();

}  // namespace levin
