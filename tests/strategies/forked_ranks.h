// Ranks of one test: processes that are forked before LibTorch has threads, each with its ProcessRanks.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "levin/strategies/process/process_ranks.h"

namespace levin::test {

/// Returns a port of this machine that nobody listens on, and none that the kernel gives to others: between here and
/// rank 0's listening another test could get it (support/ports.py).
inline int64_t free_port() {
  std::random_device random;
  for (;;) {
    const auto port = static_cast<uint16_t>(std::uniform_int_distribution<int>(25000, 32767)(random));
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(port);
    const bool is_free = ::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    ::close(listener);
    if (is_free) return port;
  }
}

/// What `work` returns on each rank, or the text of what it throws; "" of a rank that is killed. `stays`: ranks that
/// are killed once the others have ended.
inline std::vector<std::string> on_ranks(int64_t ranks, const std::function<std::string(ProcessRanks&)>& work,
                                         std::chrono::milliseconds timeout = std::chrono::seconds(60),
                                         const std::set<size_t>& stays = {}) {
  World world;
  world.size = world.local_size = ranks;
  world.master_port = free_port();
  world.source = "this test";
  std::vector<pid_t> processes;
  std::vector<int> pipes;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::array<int, 2> ends = {};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const pid_t process = ::fork();
    if (process == 0) {
      world.rank = world.local_rank = rank;
      ::alarm(120);
      std::string text;
      try {
        ProcessRanks connected("auto", timeout, timeout);
        connected.join(world);
        text = work(connected);
      } catch (const std::exception& error) {
        text = error.what();
      }
      const bool is_written = ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
      ::_exit(is_written ? 0 : 1);
    }
    ::close(ends[1]);
    processes.push_back(process);
    pipes.push_back(ends[0]);
  }
  std::vector<std::string> texts(processes.size());
  for (size_t k = 0; k < processes.size(); ++k) {
    if (stays.count(k) > 0) continue;
    std::array<char, 4096> part = {};
    for (ssize_t size; (size = ::read(pipes[k], part.data(), part.size())) > 0;) {
      texts[k].append(part.data(), static_cast<size_t>(size));
    }
  }
  for (size_t k = 0; k < processes.size(); ++k) {
    if (stays.count(k) > 0) ::kill(processes[k], SIGKILL);
    ::waitpid(processes[k], nullptr, 0);
    ::close(pipes[k]);
  }
  return texts;
}

}  // namespace levin::test
