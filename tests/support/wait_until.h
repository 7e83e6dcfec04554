// Waiting for an event instead of for a time. A test that needs a different sleep is in the list of
// tests/layers/sleeps.py, with the reason.
//
//   ASSERT_TRUE(test::wait_until([&] { return std::filesystem::exists(path); }));
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

namespace levin::test {

/// Waits until `is_so()` returns true. Returns false if it does not within `limit`, which is long because it bounds the
/// time of a failure alone.
template <class Condition>
[[nodiscard]] bool wait_until(const Condition& is_so, std::chrono::seconds limit = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Returns the threads of this process.
inline std::set<pid_t> threads() {
  std::set<pid_t> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    found.insert(std::stoi(task.path().filename().string()));
  }
  return found;
}

/// Returns true if this thread of this process is blocked: in a wait, a lock or a sleep.
inline bool is_blocked(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat[name_end + 2] == 'S';
}

}  // namespace levin::test
