// A complete program: `levin` with the classes that your program registers.
//
//   int main(int argc, char** argv) { return levin::run_cli(argc, argv); }
#pragma once

namespace levin {

/// Runs the command line and returns the exit code (ExitCode in core/process/main_guard.h). Does not throw.
int run_cli(int argc, char** argv);

}  // namespace levin
