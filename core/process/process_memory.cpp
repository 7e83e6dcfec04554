#include "levin/core/process/process_memory.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <string>

#ifdef __GLIBC__
#include <gnu/libc-version.h>
#include <malloc.h>
#endif

namespace levin {

namespace {

std::atomic<bool> set_by_strategy = false;
std::atomic<int64_t> set_largest_block = 0, set_kept = 0;

// What glibc's own adjustment reaches once a block of 32 MiB has been freed, its largest. It cannot be turned on again.
constexpr FreedMemory kAdjusted{int64_t{32} << 20, int64_t{64} << 20};

rusage usage_so_far() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage;
}

void tell(const FreedMemory& setting) {
#ifdef __GLIBC__
  const auto number = [](int64_t bytes) { return static_cast<int>(std::min<int64_t>(bytes, INT_MAX)); };
  ::mallopt(M_MMAP_THRESHOLD, number(setting.largest_block));
  if (setting.kept > 0) ::mallopt(M_TRIM_THRESHOLD, number(setting.kept));
#else
  (void)setting;
#endif
}

}  // namespace

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {  // "VmRSS:     1234 kB"
    const auto bytes = [&] { return std::strtoll(line.c_str() + line.find(':') + 1, nullptr, 10) * 1024; };
    if (line.starts_with("VmHWM:")) memory.peak = bytes();
    if (line.starts_with("VmRSS:")) {
      memory.resident = bytes();
      break;  // it follows VmHWM
    }
  }
  return memory;
}

bool can_set_freed_memory() {
#ifdef __GLIBC__
  static const bool has_own_malloc = [] {  // as with jemalloc, tcmalloc and sanitizers
    Dl_info malloc_info = {}, libc_info = {};
    return ::dladdr(::dlsym(RTLD_DEFAULT, "malloc"), &malloc_info) == 0 ||
           ::dladdr(reinterpret_cast<void*>(&::gnu_get_libc_version), &libc_info) == 0 ||
           malloc_info.dli_fbase != libc_info.dli_fbase;
  }();
  if (has_own_malloc) return false;
  for (const char* name : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"}) {
    if (std::getenv(name) != nullptr) return false;
  }
  return true;
#else
  return false;
#endif
}

void set_freed_memory(const FreedMemory& setting) {
  if (!can_set_freed_memory()) return;
  set_largest_block = setting.largest_block;
  set_kept = setting.kept;
  set_by_strategy = true;
  tell(setting);
}

bool freed_memory_is_set() {
  return set_by_strategy;
}

FreedMemoryScope::FreedMemoryScope(const FreedMemory& setting) {
  if (can_set_freed_memory()) tell(setting);
}

FreedMemoryScope::~FreedMemoryScope() {
  if (!can_set_freed_memory()) return;
  tell(set_by_strategy ? FreedMemory{set_largest_block, set_kept} : kAdjusted);
  return_freed_memory();
}

void return_freed_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

int64_t page_faults() {
  return usage_so_far().ru_minflt;
}

int64_t peak_resident_bytes() {
  return int64_t{usage_so_far().ru_maxrss} * 1024;
}

int64_t page_bytes() {
  return ::sysconf(_SC_PAGESIZE);
}

}  // namespace levin
