#include "report.h"

#include <cxxabi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <unordered_map>

#include "memory.h"
#include "settings.h"

namespace simulated {

namespace {

struct Counts {
  std::mutex mutex;
  std::unordered_map<std::string, long> all;
};

Counts& counts() {
  static auto* counts = new Counts;
  return *counts;
}

std::string readable(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = text == nullptr ? name : text;
  std::free(text);
  return result.substr(0, 160);
}

struct AtExit {
  ~AtExit() {
    if (settings().report.empty()) return;
    std::FILE* file = std::fopen(settings().report.c_str(), "a");
    if (file == nullptr) return;
    std::fprintf(file, "process %d: %.2f MiB at most\n", ::getpid(),
                 static_cast<double>(DeviceMemory::instance().peak()) / (1 << 20));
    const std::lock_guard lock(counts().mutex);
    std::multimap<long, std::string> by_count;
    for (const auto& [name, times] : counts().all) by_count.emplace(-times, name);
    for (const auto& [times, name] : by_count) std::fprintf(file, "%10ld  %s\n", -times, readable(name).c_str());
    std::fclose(file);
  }
};
const AtExit at_exit;

}  // namespace

void count(const std::string& what, long times) {
  if (settings().report.empty()) return;
  const std::lock_guard lock(counts().mutex);
  counts().all[what] += times;
}

}  // namespace simulated
