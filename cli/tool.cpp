// The library that cli/main.cpp loads: the command line with the classes of the library and of examples/models.
#include "levin/cli/run_cli.h"
#include "levin/core/process/program_start.h"

extern "C" int levin_tool_main(int argc, char** argv) {
  levin::leave_static_objects();
  return levin::run_cli(argc, argv);
}
