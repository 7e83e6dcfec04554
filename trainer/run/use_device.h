// Selects the device of a rank.
#pragma once

namespace levin {

struct Run;

/// Selects this rank's device; loads the CUDA component for a GPU, which takes about 1.5 s. On CPUs, rank 0 warns
/// of a LibTorch with the reference BLAS. Called after the ranks have connected.
void use_device(Run& run);

}  // namespace levin
