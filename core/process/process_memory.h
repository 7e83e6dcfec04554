// How much memory this process holds, as the kernel counts it.
#pragma once

#include <cstdint>

namespace levin {

struct ProcessMemory {
  int64_t resident = 0;  // bytes in physical memory now
  int64_t peak = 0;      // the most there ever was
};

/// Reads /proc/self/status; returns zeros if it cannot be read.
[[nodiscard]] ProcessMemory process_memory();

// What malloc does with freed memory: it keeps it for the next allocation, or returns it to the system, from where it
// comes back page by page, each with a page fault. The setting belongs to the process; nothing else in Levin changes
// it.

struct FreedMemory {
  int64_t largest_block = 0;  // bytes, at most 2 GiB: larger blocks are returned when they are freed
  int64_t kept = 0;           // bytes that each arena keeps when they are freed; 0: unchanged
};

/// Returns false without glibc's malloc, and if MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_ or GLIBC_TUNABLES is
/// set: nothing in this header has an effect then.
[[nodiscard]] bool can_set_freed_memory();

/// Applies the setting for the rest of the process: for strategies whose threads or shards need it. The last call wins.
void set_freed_memory(const FreedMemory& setting);
/// The setting for several threads that free and allocate in every step: page faults of one thread block the others.
inline constexpr FreedMemory kKeptForThreads{int64_t{32} << 20, int64_t{1} << 30};
/// Returns true after set_freed_memory().
[[nodiscard]] bool freed_memory_is_set();

/// Applies a setting for the lifetime of the object. The end restores the setting and returns free memory to the
/// system.
class FreedMemoryScope {
 public:
  explicit FreedMemoryScope(const FreedMemory& setting);
  ~FreedMemoryScope();
  FreedMemoryScope(const FreedMemoryScope&) = delete;
  FreedMemoryScope& operator=(const FreedMemoryScope&) = delete;
};

/// Returns free memory to the system now.
void return_freed_memory();

/// Returns the number of page faults since the start of the process that needed no disk.
[[nodiscard]] int64_t page_faults();
/// Returns the largest number of bytes that this process has held at a time.
[[nodiscard]] int64_t peak_resident_bytes();
/// Returns the bytes of a page.
[[nodiscard]] int64_t page_bytes();

}  // namespace levin
