// The programs that tests start: bin/NAME is a link to this program, which runs the program of that name. Compiled
// separately, each would take the compiler 10 s more for the templates that LibTorch's headers leave pending.
#include <cstdio>
#include <string>

#include "levin/core/process/program_start.h"

// test_programs.inc has a line LEVIN_TEST_PROGRAM(name) for each program; CMakeLists.txt writes it.
#define LEVIN_TEST_PROGRAM(name) \
  namespace name {               \
  int run_program(int, char**);  \
  }
#include "test_programs.inc"
#undef LEVIN_TEST_PROGRAM

int main(int argc, char** argv) {
  levin::leave_static_objects();
  const std::string path = argv[0];
  const std::string wanted = path.substr(path.rfind('/') + 1);
#define LEVIN_TEST_PROGRAM(name) \
  if (wanted == #name) return name::run_program(argc, argv);
#include "test_programs.inc"
  std::fprintf(stderr, "%s: run it by the name of a program.\n", wanted.c_str());
  return 2;
}
