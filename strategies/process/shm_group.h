// How ranks find out whether they can share memory: all of them do, or none.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/strategies/process/shm_segment.h"

namespace levin {

/// Collectives of texts, called by all ranks.
struct TextExchange {
  std::function<std::string(const std::string&)> broadcast;            // rank 0's
  std::function<std::vector<std::string>(const std::string&)> gather;  // all ranks', in their order
};

/// Memory of all ranks; where it cannot be had, no segment, and the reason, the same on every rank.
struct SharedMemory {
  std::unique_ptr<ShmSegment> segment = nullptr;
  bool on_one_host = true;
  std::string reason = {};  // "rank 0 is on host a, rank 1 is on host b"
};

/// Every rank calls it.
[[nodiscard]] SharedMemory share_memory(int rank, int size, const TextExchange& exchange);

}  // namespace levin
