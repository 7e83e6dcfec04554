// What cli/main.cpp opens: the command line over the classes of the library and of examples/models.
#include "levin/cli/run_cli.h"

extern "C" int levin_tool_main(int argc, char** argv) {
  return levin::run_cli(argc, argv);
}
