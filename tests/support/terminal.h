// Pseudo-terminals for tests, also where /dev/pts is not mounted (a bare chroot).
//
//   if (!test::terminals_can_be_had()) GTEST_SKIP() << "this machine has no pseudo-terminals";
#pragma once

#include <pty.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

namespace levin::test {

inline bool opens_a_terminal() {
  int terminal = -1, program_side = -1;
  if (::openpty(&terminal, &program_side, nullptr, nullptr, nullptr) != 0) return false;
  ::close(terminal);
  ::close(program_side);
  return true;
}

/// Root gets a /dev/pts that only this process and its children see, if there is none.
inline bool terminals_can_be_had() {
  if (opens_a_terminal()) return true;
  // Private first, or the mount would show in the mount namespaces of others. In a chroot, "/" is not a mount point but
  // /dev is.
  const auto make_private = [](const char* where) {
    return ::mount("none", where, nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  };
  if (::unshare(CLONE_NEWNS) == 0 && (make_private("/") || make_private("/dev"))) {
    ::mount("devpts", "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666");
    ::mount("/dev/pts/ptmx", "/dev/ptmx", nullptr, MS_BIND, nullptr);
  }
  return opens_a_terminal();
}

}  // namespace levin::test
