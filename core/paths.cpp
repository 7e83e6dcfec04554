#include "levin/core/paths.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace levin {

namespace fs = std::filesystem;

namespace {

// Absolute, without links, "." and ".."; parts that do not exist yet count as folders. Empty on failure.
fs::path resolved(const fs::path& path) {
  std::error_code code;
  const fs::path absolute = fs::absolute(path, code);
  if (code) return {};
  fs::path whole = fs::weakly_canonical(absolute, code);
  if (code) return {};
  return whole.has_filename() ? whole : whole.parent_path();
}

}  // namespace

bool is_path_below(const std::string& path) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = std::string_view(path).substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

std::string absolute_path(const std::string& path) {
  std::error_code code;
  const fs::path absolute = fs::absolute(path, code);
  return (code ? fs::path(path) : absolute).lexically_normal().string();
}

bool is_inside(const std::string& path, const std::string& folder) {
  if (!has_no_nul(path) || !has_no_nul(folder)) return false;
  const fs::path name = fs::path(path).filename();
  if (name.empty() || name == "." || name == "..") return false;
  const fs::path home = resolved(folder);
  const fs::path parent = resolved(fs::path(path).parent_path());
  if (home.empty() || parent.empty()) return false;
  return std::mismatch(home.begin(), home.end(), parent.begin(), parent.end()).first == home.end();
}

}  // namespace levin
