// Files of the tree that are text in the library (made by CMake from embedded_files.cpp.in).
#pragma once

#include <string_view>
#include <vector>

namespace levin {

/// A file's path, relative to its folder, and its contents.
struct EmbeddedFile {
  std::string_view path;
  std::string_view text;
};

/// cli/new_project/: what "levin new" writes.
extern const std::vector<EmbeddedFile> kProjectFiles;

/// cli/shell/: what "levin completion" prints.
extern const std::vector<EmbeddedFile> kShellScripts;

}  // namespace levin
