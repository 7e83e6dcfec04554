#include "levin/core/storage/folder_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/storage/new_file.h"

namespace levin {

namespace {

namespace fs = std::filesystem;

constexpr size_t kCopyBytes = 1 << 20;

[[noreturn]] void fail_on(const std::string& action, const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw StorageError("cannot " + action + " " + path + ": " + system_error_text(error) + ". " +
                     (full ? "Free some space there." : "Check the path and its permissions."));
}

// Returns a descriptor of a regular file.
int open_to_read(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_on("read", path, errno);
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
  ::close(fd);
  throw StorageError("cannot read " + path + ": it is not a regular file. Name a file.");
}

// Copies a file under a temporary name that is then renamed.
void copy_whole(const std::string& from, const std::string& to, bool sync, const std::atomic<bool>* abandoned) {
  const FileDescriptor source(open_to_read(from));
  NewFile target(to);
  if (target.error() != 0) fail_on("create a file in the folder of", to, target.error());
  std::vector<std::byte> buffer(kCopyBytes);
  while (true) {
    if (abandoned != nullptr && *abandoned) throw StorageError("cannot copy " + from + ": it was cancelled.");
    const ssize_t got = ::read(source.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_on("read", from, errno);
    if (got == 0) break;
    if (!target.write(std::span(buffer).first(static_cast<size_t>(got)))) fail_on("write", to, target.error());
  }
  if (!target.finish(sync)) fail_on("write", to, target.error());
}

}  // namespace

FolderStore::FolderStore(std::string folder, FetchLimits limits)
    : folder_(std::move(folder)), limits_(std::move(limits)) {
  while (folder_.size() > 1 && folder_.ends_with('/')) folder_.pop_back();
}

std::string FolderStore::url(const std::string& key) const {
  return key.empty() ? folder_ : folder_ + "/" + key;
}

std::string FolderStore::path_of(const std::string& key) const {
  if (!has_no_nul(key) || !is_path_below(key)) {
    throw StorageError("the key \"" + cut_text(key) + "\" does not name a file below " + folder_ +
                       ". A key is a relative path without \"..\", such as \"train/00001.mds\".");
  }
  return url(key);
}

std::optional<StoredObject> FolderStore::find(const std::string& key) const {
  const std::string path = path_of(key);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    fail_on("read", path, errno);
  }
  if (!S_ISREG(info.st_mode)) return std::nullopt;
  return StoredObject{
      key, static_cast<uint64_t>(info.st_size),
      formatted("%lx-%lx-%lx.%lx", static_cast<unsigned long>(info.st_ino), static_cast<unsigned long>(info.st_size),
                static_cast<unsigned long>(info.st_mtim.tv_sec), static_cast<unsigned long>(info.st_mtim.tv_nsec))};
}

std::vector<StoredObject> FolderStore::list(const std::string& prefix) const {
  std::error_code code;
  std::vector<StoredObject> found;
  // Only the folder that the prefix names can hold such keys.
  const size_t slash = prefix.rfind('/');
  const std::string inside = slash == std::string::npos ? "" : prefix.substr(0, slash);
  if (!inside.empty() && !fs::is_directory(path_of(inside), code)) return found;
  const std::string start = inside.empty() ? folder_ : path_of(inside);
  fs::recursive_directory_iterator entry(start, code);
  for (; !code && entry != fs::recursive_directory_iterator(); entry.increment(code)) {
    std::error_code gone;
    if (!entry->is_regular_file(gone)) continue;
    const std::string key = entry->path().string().substr(folder_.size() + (folder_ == "/" ? 0 : 1));
    if (!key.starts_with(prefix) || is_temporary_name(entry->path().filename().string())) continue;
    if (auto object = find(key)) found.push_back(*std::move(object));
  }
  if (code) fail_on("list", start, code.value());
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return found;
}

std::string FolderStore::read(const std::string& key, uint64_t offset, std::optional<uint64_t> length) const {
  const std::string path = path_of(key);
  const FileDescriptor file(open_to_read(path));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail_on("read", path, errno);
  const auto size = static_cast<uint64_t>(info.st_size);
  const uint64_t rest = size - std::min(offset, size);
  std::string bytes(std::min(length.value_or(rest), rest), '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t got =
        ::pread(file.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_on("read", path, errno);
    if (got == 0) bytes.resize(done);  // another program has shortened the file
    done += static_cast<size_t>(got);
  }
  return bytes;
}

void FolderStore::fetch(const std::string& key, const std::string& path, const std::atomic<bool>* abandoned) const {
  copy_whole(path_of(key), path, limits_.sync, abandoned);
}

void FolderStore::put(const std::string& key, std::string_view bytes) {
  const std::string path = path_of(key);
  NewFile file(path);
  if (file.error() != 0) fail_on("create a file in the folder of", path, file.error());
  if (!file.write(std::as_bytes(std::span(bytes))) || !file.finish(true)) fail_on("write", path, file.error());
}

bool FolderStore::put_if_absent(const std::string& key, std::string_view bytes) {
  const std::string path = path_of(key);
  NewFile file(path);
  if (file.error() != 0) fail_on("create a file in the folder of", path, file.error());
  if (file.write(std::as_bytes(std::span(bytes))) && file.finish(true, /*replace=*/false)) return true;
  if (file.error() != EEXIST) fail_on("write", path, file.error());
  return false;
}

void FolderStore::put_file(const std::string& key, const std::string& path, const std::atomic<bool>* abandoned) {
  copy_whole(path, path_of(key), true, abandoned);
}

void FolderStore::remove(const std::string& key) {
  const std::string path = path_of(key);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) fail_on("remove", path, errno);
}

}  // namespace levin
