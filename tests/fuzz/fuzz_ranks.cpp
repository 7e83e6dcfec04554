// libFuzzer target: what ranks, their launcher and other programs write to each other, corrupted, cut off or repeated.
// The first byte of an input selects the kind of the rest:
//
//   p  the bytes of a rank's page, which the launcher reads
//   s  bytes of the memory that ranks share, in threes: a position, and the byte that is written there
//   o  the offer of such a memory
//   g  bytes that rank 0 gets at its gate, and a rank from a gate
//   e  environment variables of schedulers and launchers, one per line: NAME=VALUE
//   i  arguments of a program, one per line
//   l  the rank file of LSF
//   q  an exit status, and what scontrol prints
//   a  what a program answers that listens in place of rank 0's store
//   k  run.lock of a folder in which another run is active
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "fuzz_support.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/folder_lock.h"
#include "levin/core/process/rank_status.h"
#include "levin/strategies/launch/cluster_environment.h"
#include "levin/strategies/launch/init_method.h"
#include "levin/strategies/launch/listening_socket.h"
#include "levin/strategies/launch/store_gate.h"
#include "levin/strategies/process/rank_error.h"
#include "levin/strategies/process/roll_call.h"
#include "levin/strategies/process/shm_segment.h"
#include "levin/trainer/plan/auto_requeue.h"
#include "support/temporary_folder.h"

namespace levin::fuzz {
namespace {

std::vector<std::string> lines_of(const std::string& text, size_t most) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size() && lines.size() < most;) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

void read_page(std::string_view bytes) {
  static const RankPages pages(2);
  static void* const memory =
      ::mmap(nullptr, 2 * sizeof(RankPage), PROT_READ | PROT_WRITE, MAP_SHARED, pages.descriptor(), 0);
  expect(memory != MAP_FAILED, "the pages can be mapped");
  for (size_t at = 0; at < 2 * sizeof(RankPage); ++at) {  // repeated, so that a text may have no end
    static_cast<char*>(memory)[at] = bytes.empty() ? '\0' : bytes[at % bytes.size()];
  }
  const RankPage& page = pages[1];
  expect(page.text().size() < page.phase.size() + 200, "a position is no longer than its array");
  expect(page.waiting_text().size() <= page.waiting.size(), "a wait is no longer than its array");
  expect(page.error_text().size() <= page.error.size(), "an error is no longer than its array");
  const int64_t saved_at = page.last_saved();
  expect(saved_at >= 0 && saved_at <= monotonic_now(), "a save has passed");
  ++Counts::instance().whole;
}

// A second rank in the same process: a lock of fcntl() is the process's, so that both are alive.
void use_segment(std::string_view bytes) {
  using std::chrono::milliseconds;
  ShmSegment first(2, 4096);
  std::byte* const begin = first.half(0, 0) - 4096 * 3;  // the page, and a line of each rank
  ShmSegment second(first.offer(), 1, 2);
  try {
    for (size_t at = 0; at + 3 <= bytes.size(); at += 3) {
      const size_t position = (static_cast<uint8_t>(bytes[at]) * 256 + static_cast<uint8_t>(bytes[at + 1])) % 12288;
      begin[position] = static_cast<std::byte>(bytes[at + 2]);
      if (at % 9 != 0) continue;
      first.announce({1, 2, 3, 4});
      (void)second.next_round();
      (void)first.missing();
      if (first.await_all(ShmSegment::Clock::now() + milliseconds(1))) ++Counts::instance().whole;
      second.announce({1, 2, 3, 4});
      (void)second.await_all(ShmSegment::Clock::now() + milliseconds(1));
    }
    const ShmSegment third(first.offer(), 1, 2);
    const std::byte* const end = third.half(1, 1) + third.half_bytes();
    expect(end - third.half(0, 0) == 4 * 4096, "every half is within the memory");
  } catch (const Error& error) {
    expect_good_message(error.what(), 1000);
  }
}

void read_offer(const std::string& offer) {
  // Nothing else that the path could name: a device may answer a read with anything, or never.
  if (!offer.starts_with("/proc/self/fd/") && !offer.starts_with("/dev/null")) return;
  try {
    const ShmSegment segment(offer, 1, 2);
    ++Counts::instance().whole;
  } catch (const Error& error) {
    expect_good_message(error.what(), 1000);
  }
}

struct Pair {
  Connection here, there;
  Pair() {
    std::array<int, 2> ends{};
    expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "there are sockets");
    here = Connection(ends[0]);
    there = Connection(ends[1]);
  }
};

// Without the secret, nothing opens the gate, and nothing passes for a gate.
void pass_gate(std::string_view bytes) {
  static const std::string secret = "0123456789abcdef0123456789abcdef";
  for (const auto& side : {&verify_secret, &prove_secret}) {
    const Pair pair;
    (void)::send(pair.there.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::shutdown(pair.there.descriptor(), SHUT_WR);
    const std::string problem = side(pair.here.descriptor(), secret, std::chrono::milliseconds(200));
    expect(!problem.empty(), "bytes without the secret prove nothing", bytes);
    expect_good_message(problem, 1000);
  }
}

void read_environment(const std::string& text) {
  std::map<std::string, std::string> values;
  for (const std::string& line : lines_of(text, 30)) {
    const size_t equals = std::min(line.find('='), line.size());
    const std::string value = line.substr(std::min(equals + 1, line.size()));
    if (line.substr(0, equals) != "LSB_DJOB_RANKFILE" && !value.empty()) values[line.substr(0, equals)] = value;
  }
  const Variables variables = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
  (void)slurm_job(variables);
  try {
    const auto world = find_world(variables);
    if (!world) return;
    expect(world->rank >= 0 && world->rank < world->size, "a rank is among the ranks", text);
    expect(world->local_rank >= 0 && world->local_rank < world->local_size, "a rank is among those of its node", text);
    expect(world->node_rank >= 0 && world->node_rank < world->num_nodes, "a node is among the nodes", text);
    expect(world->local_size <= world->size, "a node has no more ranks than all nodes", text);
    expect(world->master_port > 0 && world->master_port < 65536, "a port is a port", text);
    ++Counts::instance().whole;
  } catch (const ConfigError& error) {
    expect(std::strlen(error.what()) < text.size() + 1000, "a message is not endless", error.what());
    check_planted(error.what(), "not a whole number >= 0");
  }
}

void read_arguments(const std::string& text) {
  const std::vector<std::string> arguments = lines_of(text, 12);
  try {
    expect(take_init_method(arguments).size() <= arguments.size(), "no argument is added", text);
    ++Counts::instance().whole;
  } catch (const ConfigError& error) {
    expect(std::strlen(error.what()) < text.size() + 1000, "a message is not endless", error.what());
  }
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", kInitMethodVariable}) ::unsetenv(name);
}

void read_rank_file(std::string_view bytes) {
  static const ScratchFile file;
  file.write(bytes);
  const std::map<std::string, std::string> values{{"LSB_JOBID", "77"},
                                                  {"LSB_DJOB_RANKFILE", file.path()},
                                                  {"JSM_NAMESPACE_RANK", "0"},
                                                  {"JSM_NAMESPACE_SIZE", "2"},
                                                  {"JSM_NAMESPACE_LOCAL_RANK", "0"}};
  try {
    const auto world = find_world([&](const std::string& name) -> std::optional<std::string> {
      const auto found = values.find(name);
      return found == values.end() ? std::nullopt : std::optional(found->second);
    });
    expect(world && world->num_nodes >= 1 && !world->master_address.empty(), "a rank file names a host");
    ++Counts::instance().whole;
  } catch (const ConfigError& error) {
    expect_good_message(error.what(), 3000);
  }
}

// A program of this name on PATH prints the bytes.
void requeue(std::string_view bytes) {
  static const test::TemporaryFolder folder;
  static const bool is_written = [] {
    const std::string path = folder.write("scontrol", "#!/bin/sh\ncat '" + folder.path() + "/said'\nread status < '" +
                                                          folder.path() + "/status'\nexit $status\n");
    ::chmod(path.c_str(), 0755);
    return ::setenv("PATH", (folder.path() + ":" + std::getenv("PATH")).c_str(), 1) == 0;
  }();
  expect(is_written, "a program can be put on PATH");
  const int status = bytes.empty() ? 0 : static_cast<uint8_t>(bytes[0]) % 4;
  folder.write("status", std::to_string(status) + "\n");
  folder.write("said", std::string(bytes.substr(std::min<size_t>(1, bytes.size()))));
  const std::string outcome = requeue_job([](const std::string& name) -> std::optional<std::string> {
    if (name == "SLURM_JOB_ID") return "4711";
    return name == "SLURM_NTASKS" ? std::optional<std::string>("1") : std::nullopt;
  });
  expect_good_message(outcome, 1000);
  expect((outcome.find("starts job 4711 again") != std::string::npos) == (status == 0), "the status decides", outcome);
  ++Counts::instance().whole;
}

// Once it has answered, it closes the connection.
void ask_for_store(std::string_view bytes) {
  ListeningSocket socket("127.0.0.1", 0);
  std::thread program([&] {
    const Connection connection(::accept4(socket.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    (void)::send(connection.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  });
  try {
    await_store("127.0.0.1", socket.port(), std::chrono::milliseconds(0));
    expect(bytes.starts_with("\n\n\n\n"), "only a store passes for a store", bytes);
    ++Counts::instance().whole;
  } catch (const Error& error) {
    expect_good_message(error.what(), 1000);
  }
  program.join();
}

void read_lock(std::string_view bytes) {
  static const test::TemporaryFolder folder;
  const std::string path = folder.write("run.lock", std::string(bytes));
  const Connection other(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  expect(::flock(other.descriptor(), LOCK_EX | LOCK_NB) == 0, "a file can be locked");
  try {
    const FolderLock lock(folder.path(), std::chrono::milliseconds(0));
    expect(false, "a folder is locked once");
  } catch (const Error& error) {
    expect_good_message(error.what(), 2000);
  }
  ++Counts::instance().whole;
}

}  // namespace

void run_one(std::string_view input) {
  ++Counts::instance().inputs;
  if (input.empty()) return;
  const std::string_view rest = input.substr(1);
  switch (input[0]) {
    case 'p': return read_page(rest);
    case 's': return use_segment(rest.substr(0, 90));
    case 'o': return read_offer(std::string(rest));
    case 'g': return pass_gate(rest.substr(0, 4096));
    case 'e': return read_environment(std::string(rest));
    case 'i': return read_arguments(std::string(rest));
    case 'l': return read_rank_file(rest);
    case 'q': return requeue(rest);
    case 'a': return ask_for_store(rest.substr(0, 4096));
    case 'k': return read_lock(rest);
    default: return;
  }
}

void begin() {
  Counts::print_at_exit();
  Console::instance().capture([](const std::string&) {});
}

}  // namespace levin::fuzz
