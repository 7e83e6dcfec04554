// Where the tree and its build are. Functions, because the compiler is told these folders for one file alone: the
// objects of all others are the same in every clone, and ccache finds them.
#pragma once

#include <string>

namespace levin::test {

/// The root of the tree.
[[nodiscard]] const std::string& source_dir();
/// The folder of the build, with bin/ and lib/.
[[nodiscard]] const std::string& binary_dir();
/// The library of stand_in_nvidia.cpp.
[[nodiscard]] std::string stand_in_nvidia();

}  // namespace levin::test
