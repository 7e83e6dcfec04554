// MKL's vector functions, which LibTorch calls for exp, tanh, sqrt and their like on CPUs. MKL chooses a function's
// kernel while it is first called; a second thread that calls it meanwhile computes its part of the tensor with the
// kernel of lowest accuracy (thousands of ulp), once: https://github.com/pytorch/pytorch/issues/188792. Runs with the
// same seed, and resumed runs, would differ. Internal.
#pragma once

namespace levin {

/// Has MKL choose its kernels, on the calling thread, when a process calls it for the first time (1 ms). To be called
/// before threads compute: constructors of modules do so. Ignores modes of the dispatcher and of autograd. Threads may
/// call it at the same time.
void choose_vector_math();

}  // namespace levin
