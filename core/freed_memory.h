// What malloc does with memory that is freed: keep it for the next allocation, or return it to the system, from where
// it comes back page by page, each with a page fault. The setting is the process's; nothing else in Levin changes it.
#pragma once

#include <cstdint>

namespace levin {

struct FreedMemory {
  int64_t largest_block = 0;  // bytes: larger blocks are returned as soon as they are freed; at most 2 GiB
  int64_t kept = 0;           // bytes of each arena that may be free before they are returned; 0: as it is
};

/// False without glibc's malloc, and where MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_ or GLIBC_TUNABLES is set:
/// then nothing here has an effect.
[[nodiscard]] bool can_set_freed_memory();

/// For the rest of the process: for a strategy whose threads or shards need it. The last one called counts.
void set_freed_memory(const FreedMemory& setting);
/// What threads of one process need that free and allocate in every step: page faults of one block the others.
inline constexpr FreedMemory kKeptForThreads{int64_t{32} << 20, int64_t{1} << 30};
/// Whether a strategy has.
[[nodiscard]] bool freed_memory_is_set();

/// A setting that ends with the object: what is free then goes back to the system, and malloc does as before.
class FreedMemoryScope {
 public:
  explicit FreedMemoryScope(const FreedMemory& setting);
  ~FreedMemoryScope();
  FreedMemoryScope(const FreedMemoryScope&) = delete;
  FreedMemoryScope& operator=(const FreedMemoryScope&) = delete;
};

/// Returns what is free to the system now.
void return_freed_memory();

/// Page faults of this process that needed no disk, since its start.
[[nodiscard]] int64_t page_faults();
/// The most bytes of memory that this process has held at a time.
[[nodiscard]] int64_t peak_resident_bytes();
/// Bytes that one page fault brings.
[[nodiscard]] int64_t page_bytes();

}  // namespace levin
