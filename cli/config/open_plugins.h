// Opens the libraries that a run file names under `plugins`, for the classes and devices that they register.
//
//   plugins: [build/libmymodels.so]
#pragma once

#include <string>
#include <vector>

#include "levin/core/error.h"

namespace levin {

/// Loads each library, once per process and until its end; `paths` are files, relative to the current folder. One that
/// cannot be loaded becomes a problem. Runs the library's code.
void open_plugins(const std::vector<std::string>& paths, Problems& problems);

}  // namespace levin
