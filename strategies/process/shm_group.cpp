#include "levin/strategies/process/shm_group.h"

#include <algorithm>

#include "levin/core/error.h"

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

}  // namespace levin
