// For the first lines of main(), before anything is loaded. Header-only.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <iostream>

namespace levin {

// Descriptors 0 to 2. If one is closed, the next file that is opened gets its number, and output goes to that file.
// Header-only, because the `levin` program calls it before it loads anything.

/// Opens /dev/null for each standard stream that is closed: reading gives the end of the file, and output is discarded,
/// as intended by closing it.
inline void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    int opened = ::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY);
    if (opened < 0)
      opened = ::open("/", O_PATH);  // without /dev: nothing can be read or written, but the place is taken
    if (opened < 0 || opened == fd) continue;
    ::dup2(opened, fd);
    ::close(opened);
  }
}

// Ends a program without destroying what existed before its main(). Header-only, for programs of any kind.

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
