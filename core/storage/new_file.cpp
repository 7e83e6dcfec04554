#include "levin/core/storage/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <utility>

namespace levin {

NewFile::NewFile(std::string path) : path_(std::move(path)) {
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  if (!folder.empty()) make_folder(folder);
  for (int tries = 0; tries < 10 && !file_; ++tries) {
    temporary_ = temporary_name(path_);
    file_ = LockedFile::create(temporary_);
    if (!file_ && errno != EEXIST && errno != EAGAIN) break;
  }
  if (!succeeded(static_cast<bool>(file_))) temporary_.clear();  // no file of this object to remove
}

NewFile::~NewFile() {
  if (!temporary_.empty()) (void)::unlink(temporary_.c_str());
}

bool NewFile::succeeded(bool success) {
  if (!success) error_ = errno;
  return success;
}

bool NewFile::write(std::span<const std::byte> bytes) {
  return succeeded(write_all(file_.fd(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

bool NewFile::clear() {
  return succeeded(::ftruncate(file_.fd(), 0) == 0 && ::lseek(file_.fd(), 0, SEEK_SET) == 0);
}

bool NewFile::finish(bool sync, bool replace) {
  if (sync && !succeeded(::fsync(file_.fd()) == 0)) return false;
  bool named = false;
  if (replace) {
    named = ::rename(temporary_.c_str(), path_.c_str()) == 0;
  } else {
    named = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0;
    if (!named && errno != EEXIST) {  // NFS has no such rename, but links
      named = ::link(temporary_.c_str(), path_.c_str()) == 0;
      if (named) (void)::unlink(temporary_.c_str());
    }
  }
  if (!succeeded(named)) return false;
  temporary_.clear();
  if (!sync) return true;
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  sync_file(folder.empty() ? "." : folder);
  return true;
}

}  // namespace levin
