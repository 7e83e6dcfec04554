// Opens the libraries that a run file names under `plugins`, for the classes and devices that they register.
//
//   plugins: [build/libmymodels.so]
#pragma once

#include <string>
#include <vector>

#include "levin/cli/config/merge.h"
#include "levin/core/value.h"

namespace levin {

/// Loads each library, once per process and until its end; `paths` are files, relative to the current folder. One that
/// cannot be loaded becomes a problem. Runs the library's code.
void open_plugins(const std::vector<std::string>& paths, Problems& problems);

/// The same paths as they lead to the libraries from any folder.
[[nodiscard]] std::vector<std::string> absolute_plugins(const std::vector<std::string>& paths);

/// open_plugins for those that run files and --plugins name, whatever else the files hold: for "levin list" and "levin
/// help".
void open_plugins_of(const std::vector<ConfigSource>& sources, Problems& problems);

}  // namespace levin
