// Memory that several threads of one process free and allocate again in every step.
#pragma once

namespace levin {

/// Makes malloc keep freed memory, up to 1 GiB per arena, in blocks of up to 32 MiB: memory returned to the system
/// costs page faults in the next step, which the kernel serializes among the threads of a process. Does nothing if
/// MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_ or GLIBC_TUNABLES is set.
void keep_freed_memory();

}  // namespace levin
