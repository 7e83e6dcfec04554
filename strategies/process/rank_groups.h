// The process groups of a run's ranks, by what their messages travel through.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>

#include "levin/strategies/process/shm_group.h"
#include "levin/strategies/world.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace levin {

/// Where the ranks of one group meet.
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
