// How strategies get a process group over NCCL, which requires CUDA libraries: by a symbol of Levin's CUDA component.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>

#include "levin/strategies/mesh.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace levin {

/// A group of the ranks of `world`, of which this one uses `device`. Every rank calls it; it does not block: NCCL
/// connects with the first collective.
using MakeNcclGroup = c10::intrusive_ptr<c10d::ProcessGroup> (*)(const c10::intrusive_ptr<c10d::Store>& store,
                                                                 const World& world, std::chrono::milliseconds timeout,
                                                                 at::Device device);
inline constexpr const char* kMakeNcclGroup = "levin_make_nccl_group";

}  // namespace levin
