// The library for matrix products on CPUs. PyPI's LibTorch contains one. Debian's uses the BLAS that is installed: by
// default the reference implementation, and then a training step takes ten times as long. Internal.
#pragma once

#include <string>

namespace levin {

/// Returns the path of the reference BLAS if LibTorch uses Debian's, otherwise "".
[[nodiscard]] std::string reference_blas();

}  // namespace levin
