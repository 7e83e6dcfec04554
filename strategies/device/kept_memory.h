// Memory that several threads of one process free and take again in every step.
#pragma once

namespace levin {

/// Lets the process keep the memory it frees, up to 1 GiB for each of malloc's arenas, in blocks of up to 32 MiB:
/// returned to the system, it costs page faults in the next step, which threads of one process wait for in turn. What
/// the environment says of it (MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_, GLIBC_TUNABLES) counts instead.
void keep_freed_memory();

}  // namespace levin
