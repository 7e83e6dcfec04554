#include "levin/callbacks/checkpoint_folder.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "levin/core/files.h"
#include "levin/core/tensor_text.h"

namespace levin {

namespace fs = std::filesystem;

std::string versioned_path(const std::string& folder, const std::string& stem, int64_t version) {
  const std::string counter = version == 0 ? "" : "-v" + std::to_string(version);
  return (fs::path(folder) / (stem + counter + ".ckpt")).string();
}

int64_t free_version(const std::string& folder, const std::string& stem, const std::string& own) {
  int64_t version = 0;
  while (versioned_path(folder, stem, version) != own &&
         fs::exists(fs::symlink_status(versioned_path(folder, stem, version)))) {
    ++version;
  }
  return version;
}

bool is_inside(const std::string& path, const std::string& folder) {
  return path.starts_with((fs::path(folder) / "").string());
}

std::string folder_problem(const std::string& folder, uint64_t bytes) {
  fs::path there(folder);
  std::error_code code;
  while (!fs::exists(there, code) && there.has_parent_path() && there.parent_path() != there) {
    there = there.parent_path();
  }
  if (!fs::is_directory(there, code)) return there.string() + " is not a folder.";
  if (::access(there.c_str(), W_OK | X_OK) != 0) {
    return "nothing can be written to " + there.string() + ": " + system_error_text(errno) + ".";
  }
  struct statvfs info {};
  if (::statvfs(there.c_str(), &info) != 0) return "";  // a file system that does not tell
  const uint64_t free_bytes = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  if (free_bytes >= bytes) return "";
  return there.string() + " has " + bytes_text(free_bytes) + " free, and two checkpoints take up to " +
         bytes_text(bytes) + ".";
}

}  // namespace levin
