// The levin tool with the classes that model.cpp and data.cpp register: build/my_project --help
#include <levin/cli/run_cli.h>

int main(int argc, char** argv) {
  return levin::run_cli(argc, argv);
}
