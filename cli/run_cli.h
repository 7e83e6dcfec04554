// A whole program: `levin` with the classes that you register in yours.
//
//   int main(int argc, char** argv) { return levin::run_cli(argc, argv); }
#pragma once

namespace levin {

/// Does what the command line says and returns the exit code (exit_codes.h). Throws nothing.
int run_cli(int argc, char** argv);

}  // namespace levin
