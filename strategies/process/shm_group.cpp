#include "levin/strategies/process/shm_group.h"

#include <algorithm>
#include <utility>

#include "levin/core/error.h"
#include "levin/strategies/process/place.h"

namespace levin {

namespace {

// Of a rank's slot: the fewest waits for others, in memory that still fits into a cache.
constexpr size_t kHalfBytes = 1 << 20;
constexpr const char* kElsewhere = "elsewhere ";

std::string host_of(const std::string& machine) {
  return machine.substr(0, machine.find(' '));
}

}  // namespace

SharedMemory share_memory(int rank, int size, const TextExchange& exchange) {
  SharedMemory memory;
  std::string problem;
  std::string offer;
  if (rank == 0) {
    try {
      memory.segment = std::make_unique<ShmSegment>(size, kHalfBytes);
      offer = memory.segment->offer();
    } catch (const Error& error) {
      problem = error.what();
    }
  }
  const std::string invitation = exchange.broadcast(this_machine() + "\n" + offer);
  const std::string machine = invitation.substr(0, invitation.find('\n'));
  offer = invitation.substr(machine.size() + 1);
  if (rank != 0 && machine != this_machine()) {
    problem = kElsewhere + host_of(this_machine());
  } else if (rank != 0 && !offer.empty()) {
    try {
      memory.segment = std::make_unique<ShmSegment>(offer, rank, size);
    } catch (const Error& error) {
      problem = error.what();
    }
  }
  const std::vector<std::string> problems = exchange.gather(problem);
  for (size_t k = 0; k < problems.size(); ++k) {
    if (problems[k].empty()) continue;
    const bool is_elsewhere = problems[k].rfind(kElsewhere, 0) == 0;
    memory.on_one_host = memory.on_one_host && !is_elsewhere;
    memory.reason += (memory.reason.empty() ? "rank " : ", rank ") + std::to_string(k) +
                     (is_elsewhere ? " is on host " + problems[k].substr(std::string(kElsewhere).size())
                                   : " has no shared memory: " + problems[k]);
  }
  if (memory.reason.empty()) return memory;
  memory.segment.reset();
  if (!memory.on_one_host) memory.reason = "rank 0 is on host " + host_of(machine) + ", " + memory.reason;
  return memory;
}

}  // namespace levin
