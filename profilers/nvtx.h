// NVTX ranges without CUDA's headers: NVIDIA's Nsight tools show them above the kernels.
#pragma once

#include <string>

namespace levin {

/// Opens and closes a range on the calling thread; ranges of a thread nest.
struct Nvtx {
  void (*push)(const char* name) = nullptr;
  void (*pop)() = nullptr;
  std::string source = "";  // their provider
};

/// From `library` (a path, or a name that the loader finds); with "" from LibTorch's CUDA part if it is loaded, else
/// from NVIDIA's library. Throws ConfigError naming what was tried.
[[nodiscard]] Nvtx find_nvtx(const std::string& library = "");

}  // namespace levin
