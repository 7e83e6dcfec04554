#pragma once

namespace levin {

struct Run;

/// Puts this rank on its device; opens the CUDA component for a GPU, which takes about 1.5 s. After the ranks have met.
void use_device(Run& run);

}  // namespace levin
