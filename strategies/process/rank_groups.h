// The process groups of a run's ranks, by what their messages travel through.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/strategies/mesh.h"
#include "levin/strategies/process/shm_segment.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace levin {

/// Gathers every rank's text, in the order of ranks; every rank calls it.
using TextGather = std::function<std::vector<std::string>(const std::string&)>;

/// Memory that the ranks of this machine share; none where this rank is the only one there, and others are elsewhere.
struct SharedMemory {
  std::unique_ptr<ShmSegment> segment = nullptr;
  std::string reason = {};  // not empty: the ranks of a machine cannot share memory, so none do; the same on every rank
};

/// Finds out whether the ranks of each machine can share memory: all machines do, or none. Every rank calls it.
/// `machines`: every rank's.
[[nodiscard]] SharedMemory share_memory(int64_t rank, const std::vector<std::string>& machines,
                                        const TextGather& gather);

/// How the ranks of one group find each other.
struct GroupPlace {
  c10::intrusive_ptr<c10d::Store> store;
  World world;
  std::string name;  // of their keys in the store
  std::chrono::milliseconds timeout;
};

using RankGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

/// For tensors on the CPU and on `device`.
[[nodiscard]] RankGroup make_gloo_group(const GroupPlace& place, int threads, at::Device device = at::kCPU);
[[nodiscard]] RankGroup make_nccl_group(const GroupPlace& place, at::Device device);
/// Through shared memory, and with several hosts through Gloo between them. Null where no ranks share a host, or, after
/// a warning that says why, cannot share memory. `is_required`: all ranks must; ConfigError otherwise.
[[nodiscard]] RankGroup make_shm_group(const GroupPlace& place, const TextGather& gather, bool is_required);

}  // namespace levin
