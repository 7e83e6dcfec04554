// Part of every program and library of a coverage build (cmake/LevinWarnings.cmake): counts of lines are written when a
// process ends by exit(), but programs and tests of Levin also end by _exit(), without destroying LibTorch's objects.
#include <sys/syscall.h>
#include <unistd.h>

extern "C" void __gcov_dump();  // each program and library has its own

namespace levin::coverage {

struct Dump {
  void (*write)() = nullptr;
  Dump* next = nullptr;
};

inline Dump* dumps = nullptr;  // the same in all libraries of the process

namespace {

struct Registered : Dump {
  Registered() : Dump{__gcov_dump, dumps} { dumps = this; }
};

Registered registered;

}  // namespace
}  // namespace levin::coverage

// Comes before libc's, weak because the objects of one library may bring it twice.
extern "C" __attribute__((weak, noreturn)) void _exit(int status) {
  for (levin::coverage::Dump* dump = levin::coverage::dumps; dump; dump = dump->next) dump->write();
  for (;;) ::syscall(SYS_exit_group, status);
}
