#include "levin/strategies/process/roll_call.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "levin/core/console.h"
#include "levin/core/this_process.h"

namespace levin {

namespace {

using RollClock = std::chrono::steady_clock;

constexpr const char* kArrived = "roll/arrived";
constexpr const char* kRefused = "roll/refused";
constexpr const char* kNotified = "roll/notified";
constexpr size_t kNamedRanks = 8;
constexpr std::chrono::seconds kQuietWait{30};
constexpr std::chrono::seconds kFarewell{5};

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text_of(const std::vector<uint8_t>& data) {
  return {data.begin(), data.end()};
}

std::string this_process() {
  return "process " + std::to_string(::getpid()) + " on " + host_name();
}

std::string claim_key(int64_t rank) {
  return "roll/" + std::to_string(rank);
}

// The store is in rank 0's process, which waits until all connected ranks have read why the roll call failed, but no
// longer than `kFarewell`: their errors after it has ended would not be informative. Of two processes with rank 0, the
// second does not have the store.
[[noreturn]] void leave(c10d::Store& store, const World& world, const std::string& text) {
  const auto start = RollClock::now();
  try {
    store.add(kNotified, 1);
    while (world.rank == 0 && store.add(kNotified, 0) <= store.add(kArrived, 0) &&
           RollClock::now() - start < kFarewell) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  } catch (const std::exception&) {
    // The store has ended because all ranks were notified.
  }
  throw RankError(text);
}

void claim(c10d::Store& store, const World& world) {
  const std::string self = this_process();
  const std::string holder = text_of(store.compareSet(claim_key(world.rank), {}, bytes(self)));
  if (holder == self) return;
  const std::string text = rank_text(world) + " was given to two processes: " + holder + ", and " + self + " (by " +
                           world.source +
                           "). Give every process its own rank: RANK, --rank, or with several nodes NODE_RANK.";
  if (store.add(kArrived, 0) >= world.size) throw RendezvousClosed(text);
  store.set(kRefused, bytes(text));
  leave(store, world, text);
}

std::string missing_ranks(c10d::Store& store, const World& world) {
  std::string missing;
  size_t count = 0;
  for (int64_t rank = 0; rank < world.size && count <= kNamedRanks; ++rank) {
    if (store.check({claim_key(rank)})) continue;
    const std::string name = count < kNamedRanks ? std::to_string(rank) : "…";
    missing += (count++ > 0 ? ", " : "") + name;
  }
  return missing;
}

}  // namespace

void call_roll(c10d::Store& store, const World& world, std::chrono::milliseconds timeout) {
  if (world.size <= 1) return;
  claim(store, world);
  store.add(kArrived, 1);
  const auto start = RollClock::now();
  bool reported = world.rank != 0;
  for (std::chrono::milliseconds pause{1}; store.add(kArrived, 0) < world.size;) {
    if (store.check({kRefused})) leave(store, world, text_of(store.get(kRefused)));
    const auto waited = RollClock::now() - start;
    if (waited >= timeout) {
      throw RankError(rank_text(world) + " has waited " + std::to_string(timeout.count() / 1000) +
                      " s for the others. Not started: rank " + missing_ranks(store, world) + "." +
                      (world.num_nodes > 1
                           ? " Every node needs the same MASTER_ADDR and MASTER_PORT (here " + world.master_address +
                                 ":" + std::to_string(world.master_port) + ") and a different node rank."
                           : ""));
    }
    if (waited >= kQuietWait && !std::exchange(reported, true)) {
      Console::instance().print("Waiting for rank " + missing_ranks(store, world) + " of " +
                                std::to_string(world.size) + " at " + world.master_address + ":" +
                                std::to_string(world.master_port) +
                                (world.num_nodes > 1 ? ", the address that all nodes must be given." : "."));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

}  // namespace levin
