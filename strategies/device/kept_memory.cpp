#include "levin/strategies/device/kept_memory.h"

#include <cstdlib>
#include <initializer_list>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace levin {

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargeBlock = 32 << 20, kKept = 1 << 30;
  for (const char* name : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"}) {
    if (std::getenv(name) != nullptr) return;
  }
  ::mallopt(M_MMAP_THRESHOLD, kLargeBlock);
  ::mallopt(M_TRIM_THRESHOLD, kKept);
#endif
}

}  // namespace levin
