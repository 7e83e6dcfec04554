// Descriptors 0 to 2. If one is closed, the next file that is opened gets its number, and output goes to that file.
// Header-only, because the `levin` program calls it before it loads anything.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

namespace levin {

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

}  // namespace levin
