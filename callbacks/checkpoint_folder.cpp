#include "levin/callbacks/checkpoint_folder.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "levin/core/files.h"
#include "levin/core/paths.h"
#include "levin/core/tensor_text.h"

namespace levin {

namespace fs = std::filesystem;

std::string versioned_path(const std::string& folder, const std::string& stem, int64_t version) {
  const std::string counter = version == 0 ? "" : "-v" + std::to_string(version);
  return (fs::path(folder) / (stem + counter + ".ckpt")).string();
}

int64_t free_version(const std::string& folder, const std::string& stem,
                     const std::function<bool(const std::string& path)>& is_taken) {
  int64_t version = 0;
  while (is_taken(versioned_path(folder, stem, version))) ++version;
  return version;
}

bool is_same_folder(const std::string& one, const std::string& other) {
  if (one == other) return true;
  if (!has_no_nul(one) || !has_no_nul(other)) return false;
  std::error_code code;
  const fs::path first = fs::weakly_canonical(one, code);
  if (code) return false;
  const fs::path second = fs::weakly_canonical(other, code);
  return !code && first == second;
}

bool is_same_file(const std::string& one, const std::string& other) {
  const fs::path first(one), second(other);
  return first.filename() == second.filename() &&
         is_same_folder(first.parent_path().string(), second.parent_path().string());
}

std::string name_within(const std::string& path, const std::string& folder) {
  constexpr std::string_view suffix = ".ckpt";
  const std::string start = (fs::path(folder) / "").string();
  if (!path.starts_with(start) || !path.ends_with(suffix)) return "";
  const std::string name = path.substr(start.size());
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(name.begin(), name.end(), is_control)) return "";
  if (!is_path_below(name)) return "";
  return name.substr(name.rfind('/') + 1) == suffix ? "" : name;
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
  if (::statvfs(there.c_str(), &info) != 0) return "";  // the file system does not report it
  const uint64_t free_bytes = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  if (free_bytes >= bytes) return "";
  return there.string() + " has " + bytes_text(free_bytes) + " free, and two checkpoints take up to " +
         bytes_text(bytes) + ".";
}

}  // namespace levin
