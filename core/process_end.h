// Ends a program without destroying what existed before its main(). Header-only, for programs of any kind.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace levin {

/// From now on the process's exit leaves out the static objects that exist already: LibTorch's take a fifth of a second
/// of a processor to destroy, and the system frees their memory in any case. What is constructed or registered later is
/// destroyed and called as ever, and standard output is flushed. For the first line of main(). Does nothing with
/// sanitizers, which report at the exit, and without glibc.
inline void leave_static_objects() {
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  (void)::on_exit(
      [](int status, void*) {
        std::cout.flush();
        std::fflush(nullptr);
        ::_exit(status);
      },
      nullptr);
#endif
}

}  // namespace levin
