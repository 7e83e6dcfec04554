// Resolves paths with links and "..". Nothing here throws: paths may come from a disk that others write to.
#pragma once

#include <string>

namespace levin {

/// For the system a path ends at its first NUL byte, so one with a NUL inside would be another path.
[[nodiscard]] inline bool has_no_nul(const std::string& path) {
  return path.find('\0') == std::string::npos;
}

/// Whether each part between "/" is a name: not empty, ".", or "..".
[[nodiscard]] bool is_path_below(const std::string& path);

/// Absolute and without "." and ".." by its text alone; unchanged if the working directory no longer exists.
[[nodiscard]] std::string absolute_path(const std::string& path);

/// Whether `path` is the name of something directly in `folder` or below it, whatever links and ".." it contains:
/// writing, replacing or removing it changes nothing elsewhere. The last name itself is not followed, because a rename
/// or a removal does not follow it either. False if that cannot be found out.
[[nodiscard]] bool is_inside(const std::string& path, const std::string& folder);

}  // namespace levin
