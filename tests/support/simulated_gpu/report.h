// What was done on the simulated GPUs: written at the end of the process where SIMULATED_GPU_REPORT names a file.
#pragma once

#include <string>

namespace simulated {

/// Kernels by their mangled name, copies, calls of CUDA that wait, …
void count(const std::string& what, long times = 1);

}  // namespace simulated
