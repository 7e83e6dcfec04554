// The folders of the tree and its build. They are functions so that only one file is compiled with these paths: all
// other objects are the same in every clone, and ccache finds them.
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
