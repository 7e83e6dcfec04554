#include "levin/data/files/shard_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/process/console.h"
#include "levin/core/process/this_process.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLocks = "locks";
constexpr const char* kUnfinished = ".part";

// Returns the name that an unfinished file will have: NAME for "NAME.part" and its maker's other files, such as
// "NAME.part.packed"; "" for a complete file.
std::string name_when_finished(const std::string& file) {
  const size_t end = file.find(kUnfinished);
  return end == std::string::npos ? "" : file.substr(0, end);
}

constexpr std::chrono::milliseconds kBetweenLooks(10);  // for a file that another process makes

// Bytes of the file of locks, by what they stand for.
constexpr off_t kRoom = 0;
off_t being_made(const std::string& name) {
  return static_cast<off_t>((std::hash<std::string>()(name) >> 3) * 2 + 2);
}
off_t in_use(const std::string& name) {
  return being_made(name) + 1;
}

// Locks that belong to the open file and not to the process: threads exclude each other, too.
bool lock_byte(int fd, off_t byte, short kind, bool waits) {
  struct flock wanted = {};
  wanted.l_type = kind;
  wanted.l_whence = SEEK_SET;
  wanted.l_start = byte;
  wanted.l_len = 1;
  int result = 0;
  do {
    result = ::fcntl(fd, waits ? F_OFD_SETLKW : F_OFD_SETLK, &wanted);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EAGAIN && errno != EACCES) {
    throw DataError("the cache of shards: cannot lock a file: " + system_error_text(errno) +
                    ". Choose a folder on a local disk (cache).");
  }
  return result == 0;
}

}  // namespace

std::string default_shard_cache() {
  return user_cache_folder("streams");
}

ShardCache::ShardCache(std::string folder, uint64_t max_bytes) : folder_(absolute_path(folder)), max_bytes_(max_bytes) {
  std::error_code code;
  fs::create_directories(fs::path(folder_).parent_path(), code);
  if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) {
    throw DataError("the cache of shards: cannot create " + folder_ + ": " + system_error_text(errno) +
                    ". Choose another folder (cache).");
  }
  remove_unfinished();
}

// Every lock has a descriptor of its own.
std::unique_ptr<FileDescriptor> ShardCache::open_locks() const {
  auto file = std::make_unique<FileDescriptor>(
      ::open(path_of(kLocks).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (*file) return file;
  throw DataError("the cache of shards: cannot open " + path_of(kLocks) + ": " + system_error_text(errno) +
                  ". Choose a folder that this user may write (cache).");
}

void ShardCache::remove_unfinished() {
  const auto locks = open_locks();
  for (const std::string& each : names_in(folder_)) {
    const std::string name = name_when_finished(each);
    if (name.empty() || !lock_byte(locks->get(), being_made(name), F_WRLCK, /*waits=*/false)) continue;
    ::unlink(path_of(each).c_str());
    lock_byte(locks->get(), being_made(name), F_UNLCK, false);
  }
}

// The lock comes first: between looking and locking, the file might be removed.
std::shared_ptr<const CachedFile> ShardCache::find(const std::string& name) {
  auto locks = open_locks();
  lock_byte(locks->get(), in_use(name), F_RDLCK, /*waits=*/true);
  const std::string path = path_of(name);
  if (::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) != 0) return nullptr;  // used just now
  return std::make_shared<const CachedFile>(path, std::move(locks));
}

std::shared_ptr<const CachedFile> ShardCache::get(const std::string& name, uint64_t bytes, const Make& make,
                                                  const std::atomic<bool>* abandoned) {
  while (true) {
    if (auto file = find(name)) return file;
    const auto locks = open_locks();
    while (!lock_byte(locks->get(), being_made(name), F_WRLCK, /*waits=*/false)) {
      if (abandoned != nullptr && *abandoned) throw DataError("the cache of shards: the pass was abandoned.");
      std::this_thread::sleep_for(kBetweenLooks);
    }
    if (::access(path_of(name).c_str(), F_OK) == 0) continue;  // made meanwhile
    (void)make_room(bytes, /*may_exceed=*/true);
    make_file(name, bytes, make);
  }
}

bool ShardCache::bring(const std::string& name, uint64_t bytes, const Make& make) {
  if (find(name) != nullptr) return true;
  const auto locks = open_locks();
  if (!lock_byte(locks->get(), being_made(name), F_WRLCK, /*waits=*/false)) return false;
  if (::access(path_of(name).c_str(), F_OK) == 0) return true;
  if (!make_room(bytes, /*may_exceed=*/false)) return false;
  make_file(name, bytes, make);
  return true;
}

// The caller holds the lock of the name, so only one writer uses the unfinished file.
void ShardCache::make_file(const std::string& name, uint64_t bytes, const Make& make) {
  const std::string path = path_of(name);
  const std::string unfinished = path + kUnfinished;
  try {
    make(unfinished);
    if (bytes == 0) (void)make_room(0, /*may_exceed=*/true);  // the new file is counted already
    sync_file(unfinished);
    if (::rename(unfinished.c_str(), path.c_str()) != 0) {
      throw DataError("the cache of shards: cannot write " + path + ": " + system_error_text(errno) + ".");
    }
  } catch (...) {
    ::unlink(unfinished.c_str());
    throw;
  }
}

bool ShardCache::make_room(uint64_t bytes, bool may_exceed) {
  const auto locks = open_locks();
  lock_byte(locks->get(), kRoom, F_WRLCK, /*waits=*/true);
  struct Old {
    std::string name;
    uint64_t bytes;
    int64_t used;  // nanoseconds
  };
  std::vector<Old> files;
  uint64_t all = bytes;
  for (const std::string& name : names_in(folder_)) {
    struct stat found = {};
    if (name == kLocks || ::lstat(path_of(name).c_str(), &found) != 0 || !S_ISREG(found.st_mode)) continue;
    all += static_cast<uint64_t>(found.st_size);
    if (!name_when_finished(name).empty()) continue;
    files.push_back({name, static_cast<uint64_t>(found.st_size),
                     int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec});
  }
  std::sort(files.begin(), files.end(), [](const Old& a, const Old& b) { return a.used < b.used; });
  for (const Old& file : files) {
    if (all <= max_bytes_) break;
    if (!lock_byte(locks->get(), in_use(file.name), F_WRLCK, /*waits=*/false)) continue;
    if (::unlink(path_of(file.name).c_str()) == 0) all -= file.bytes;
    lock_byte(locks->get(), in_use(file.name), F_UNLCK, false);
  }
  if (all <= max_bytes_) return true;
  if (may_exceed && !warned_.exchange(true)) {
    Console::instance().warn("the cache of shards in " + folder_ + " needs " + bytes_text(all) +
                             " for shards that are in use, and cache_size is " + bytes_text(max_bytes_) +
                             ". Choose a larger one, or a smaller shuffle_shards.");
  }
  return may_exceed;
}

}  // namespace levin
