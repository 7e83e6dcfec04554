// Where a path leads, links and ".." resolved. None of it throws: paths may come from a disk that others write to.
#pragma once

#include <string>

namespace levin {

/// A path ends for the system at its first NUL byte: with one inside it would be another path.
[[nodiscard]] inline bool has_no_nul(const std::string& path) {
  return path.find('\0') == std::string::npos;
}

/// Absolute and without "." and ".." by its text alone; as it is where the working folder is gone.
[[nodiscard]] std::string absolute_path(const std::string& path);

/// Whether `path` is the name of something directly in `folder` or below it, whatever links and ".." lie on the way: to
/// write, replace or remove it changes nothing elsewhere. The last name itself is not followed, because a rename or a
/// removal does not follow it either. False if that cannot be found out.
[[nodiscard]] bool is_inside(const std::string& path, const std::string& folder);

}  // namespace levin
