// How ranks find out whether those of each machine can share memory: all of them do, or none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/strategies/process/shm_segment.h"

namespace levin {

/// All ranks' texts, in their order; every rank calls it.
using TextGather = std::function<std::vector<std::string>(const std::string&)>;

/// Memory of this machine's ranks; none where this rank is the only one there, and others are elsewhere.
struct SharedMemory {
  std::unique_ptr<ShmSegment> segment = nullptr;
  std::string reason = {};  // not empty: some machine's ranks have none, so nobody has; the same text on every rank
};

/// Every rank calls it. `machines`: every rank's.
[[nodiscard]] SharedMemory share_memory(int64_t rank, const std::vector<std::string>& machines,
                                        const TextGather& gather);

}  // namespace levin
