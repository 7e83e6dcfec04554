#include "levin/strategies/process/roll_call.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/this_process.h"
#include "levin/libtorch/tcp_store.h"
#include "levin/strategies/launch/listening_socket.h"

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

namespace {

using ProbeClock = std::chrono::steady_clock;
using ProbeTime = std::chrono::milliseconds;

constexpr ProbeTime kSilence = std::chrono::seconds(30);  // possible for a store on a very busy machine
constexpr ProbeTime kBeforeWarning = std::chrono::seconds(30);
constexpr size_t kShownBytes = 60;

// A store returns the number of a ping. Line-based programs read this number as line ends, and respond.
constexpr std::string_view kPing = "\n\n\n\n";
// The first bytes that a gate sends; see kGreeting in strategies/launch/store_gate.cpp.
constexpr std::string_view kGate = "LEVIN ";

enum class Answerer { store, other, silent, closing, nobody };

struct Answer {
  Answerer who;
  std::string text = "";  // other: the bytes received; nobody: the reason
};

// Reads for at most `patience`, up to a store's answer or the first byte that differs from it.
Answer listen_to(const Connection& connection, ProbeTime patience) {
  const auto deadline = ProbeClock::now() + patience;
  std::string said;
  while (said.size() < kPing.size() && kPing.starts_with(said)) {
    const auto left = std::chrono::ceil<ProbeTime>(deadline - ProbeClock::now()).count();
    pollfd waiting = {connection.descriptor(), POLLIN, 0};
    const int ready = left > 0 ? ::poll(&waiting, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return {Answerer::silent};
    std::array<char, kShownBytes> buffer;  // NOLINT: filled by recv
    const ssize_t got = ::recv(connection.descriptor(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {said.empty() ? Answerer::closing : Answerer::other, said};
    said.append(buffer.data(), static_cast<size_t>(got));
  }
  return {said == kPing ? Answerer::store : Answerer::other, said};
}

Answer ask(const std::string& host, int64_t port, ProbeTime patience) {
  const Connection connection = connect_to(host, port);
  if (!connection) return {Answerer::nobody, std::strerror(errno)};
  const std::string text = store_ping(kPing);
  (void)::send(connection.descriptor(), text.data(), text.size(), MSG_NOSIGNAL);  // after a failure, reading fails too
  return listen_to(connection, patience);
}

[[noreturn]] void report_other(const std::string& place, const std::string& said) {
  if (said.starts_with(kGate)) {
    throw Error("rank 0 listens at " + place +
                " and requires a shared secret, which is not set for this rank. Set LEVIN_SECRET, or "
                "LEVIN_SECRET_FILE, to the same secret on all nodes.");
  }
  throw Error("another program listens at " + place + ", where rank 0's store should be: its answer is \"" +
              cut_text(said.substr(0, said.find_first_of("\r\n")), kShownBytes) +
              "\". Set MASTER_PORT to choose another port.");
}

std::string seconds_text(ProbeTime time) {
  return std::to_string(time.count() / 1000) + " s";
}

}  // namespace

void await_store(const std::string& host, int64_t port, ProbeTime timeout) {
  const std::string place = host + ", port " + std::to_string(port);
  const ProbeTime patience = std::min(timeout, kSilence);
  const auto start = ProbeClock::now();
  for (;;) {
    const Answer answer = ask(host, port, patience);
    if (answer.who == Answerer::store) return;
    if (answer.who == Answerer::other) report_other(place, answer.text);
    if (answer.who == Answerer::silent) {
      throw Error("the program that listens at " + place + " has sent nothing for " + seconds_text(patience) +
                  ": it is another program, or rank 0 hangs. Set MASTER_PORT to choose another port.");
    }
    const bool closes = answer.who == Answerer::closing;
    const auto waited = ProbeClock::now() - start;
    const std::string closing = "the program that listens at " + place +
                                " closes every connection without an answer: it is another program, or a forwarded "
                                "port at which rank 0 has not started";
    if (waited >= timeout) {
      throw Error(closes ? closing + ", for " + seconds_text(timeout) + "."
                         : "nothing has listened at " + place + " for " + seconds_text(timeout) + ": " + answer.text +
                               ". Check that all ranks run, and that the port reaches rank 0's machine.");
    }
    if (closes && waited >= kBeforeWarning) Console::instance().warn(closing + ".");
    std::this_thread::sleep_for(ProbeTime(200));
  }
}

}  // namespace levin
