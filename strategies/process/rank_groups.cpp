#include "levin/strategies/process/rank_groups.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "levin/core/gpu.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/shared_library.h"
#include "levin/libtorch/rank_backend.h"
#include "levin/strategies/launch/cluster_environment.h"
#include "levin/strategies/launch/own_address.h"
#include "levin/strategies/process/hosts_backend.h"
#include "levin/strategies/process/nccl.h"
#include "levin/strategies/process/shm_backend.h"

namespace levin {

namespace {

// Of a rank's slot: the fewest waits for others, in memory that still fits into a cache.
constexpr size_t kHalfBytes = 1 << 20;

}  // namespace

SharedMemory share_memory(int64_t rank, const std::vector<std::string>& machines, const TextGather& gather) {
  const std::string& own = machines.at(static_cast<size_t>(rank));
  const auto first = std::find(machines.begin(), machines.end(), own) - machines.begin();
  const auto here = static_cast<int>(std::count(machines.begin(), machines.end(), own));
  const auto place = static_cast<int>(std::count(machines.begin(), machines.begin() + rank, own));
  SharedMemory memory;
  std::string problem;
  const auto attempt = [&](auto make) {
    try {
      memory.segment = make();
      memory.segment->set_name(rank);
    } catch (const Error& error) {
      problem = error.what();
    }
  };
  const bool shares = here > 1 || machines.size() == 1;
  if (place == 0 && shares) attempt([&] { return std::make_unique<ShmSegment>(here, kHalfBytes); });
  const std::string offer = gather(memory.segment ? memory.segment->offer() : "")[static_cast<size_t>(first)];
  if (place > 0 && !offer.empty()) attempt([&] { return std::make_unique<ShmSegment>(offer, place, here); });
  const std::vector<std::string> problems = gather(problem);
  for (size_t k = 0; k < problems.size(); ++k) {
    if (problems[k].empty()) continue;
    memory.reason +=
        (memory.reason.empty() ? "rank " : ", rank ") + std::to_string(k) + " has no shared memory: " + problems[k];
  }
  if (!memory.reason.empty()) memory.segment.reset();
  return memory;
}

namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;

c10::intrusive_ptr<c10d::Store> own_store(const GroupPlace& place) {
  return c10::make_intrusive<c10d::PrefixStore>(place.name, place.store);
}

Backend make_gloo(const GroupPlace& place, int threads) {
  return make_gloo_backend(own_store(place), static_cast<int>(place.world.rank), static_cast<int>(place.world.size),
                           own_address(place.world), threads, place.timeout);
}

RankGroup group_of(const GroupPlace& place, const Backend& backend, c10d::ProcessGroup::BackendType type) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(own_store(place), static_cast<int>(place.world.rank),
                                                       static_cast<int>(place.world.size));
  group->setBackend(at::kCPU, type, backend);
  group->setDefaultBackend(type);
  return group;
}

// "rank 0 is on host a, rank 2 is on host b"
std::string hosts_text(const std::vector<std::string>& machines) {
  std::string text;
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    const auto end = machines.begin() + static_cast<std::ptrdiff_t>(rank);
    if (std::find(machines.begin(), end, machines[rank]) != end) continue;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " is on host " +
            machines[rank].substr(0, machines[rank].find(' '));
  }
  return text;
}

// `here`: the place's world, with this rank's place on its host.
Backend make_hosts(const GroupPlace& place, const World& here, Backend host) {
  HostsBackend::Parts parts;
  parts.host = std::move(host);
  parts.all = make_gloo(place, 2);
  if (here.local_rank == 0) {
    GroupPlace leaders = place;
    leaders.name += ".hosts";
    leaders.world.rank = here.node_rank;
    leaders.world.size = here.num_nodes;
    parts.leaders = make_gloo(leaders, 2);
  }
  return c10::make_intrusive<HostsBackend>(std::move(parts), static_cast<int>(here.rank), static_cast<int>(here.size),
                                           place.timeout);
}

}  // namespace

RankGroup make_gloo_group(const GroupPlace& place, int threads, at::Device device) {
  const Backend gloo = make_gloo(place, threads);
  auto group = group_of(place, gloo, c10d::ProcessGroup::BackendType::GLOO);
  if (device.is_cuda()) group->setBackend(at::kCUDA, c10d::ProcessGroup::BackendType::GLOO, gloo);
  return group;
}

RankGroup make_nccl_group(const GroupPlace& place, at::Device device) {
  MakeNcclGroup make = nullptr;
  gpu_library().find(make, kMakeNcclGroup);
  return make(own_store(place), place.world, place.timeout, device);
}

RankGroup make_shm_group(const GroupPlace& place, const TextGather& gather, bool is_required) {
  const auto machines = gather(this_machine());
  const World here = place_among(place.world, machines);
  const auto must = [&](const std::string& reason) {
    if (!is_required) return;
    throw ConfigError("DDPOptions.process_group_backend: shm requires memory that all ranks share, but " + reason +
                      ". Use gloo or auto.");
  };
  if (here.num_nodes > 1) must(hosts_text(machines));
  if (here.num_nodes > 1 && here.num_nodes == here.size) return {};
  SharedMemory memory = share_memory(here.rank, machines, gather);
  if (!memory.reason.empty()) {
    must(memory.reason);
    if (here.rank != 0) return {};
    Console::instance().warn("Ranks communicate over Gloo, which is slower than shared memory: " + memory.reason + ".");
    return {};
  }
  Backend backend;
  if (memory.segment) backend = c10::make_intrusive<ShmBackend>(std::move(memory.segment), place.timeout);
  if (here.num_nodes > 1) backend = make_hosts(place, here, std::move(backend));
  return group_of(place, backend, c10d::ProcessGroup::BackendType::CUSTOM);
}

}  // namespace levin
