// The library for matrix products on CPUs. PyPI's LibTorch contains one; Debian's is linked with the BLAS that is
// installed beside it, by default the reference implementation, with which a training step takes ten times as long.
// Internal.
#pragma once

#include <string>

namespace levin {

/// Returns the path of the reference BLAS if LibTorch uses Debian's, otherwise "".
[[nodiscard]] std::string reference_blas();

}  // namespace levin
