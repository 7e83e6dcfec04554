// The `levin` tool: the command line over the classes of the library and of examples/models.
#include "levin/cli/run_cli.h"

int main(int argc, char** argv) {
  return levin::run_cli(argc, argv);
}
