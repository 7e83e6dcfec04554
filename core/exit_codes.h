// The meaning of the program's exit status; docs/configuration.md lists the same.
#pragma once

namespace levin {

enum ExitCode : int {
  kExitOk = 0,
  kExitRunFailed = 1,      // the run started and failed: an exception in the module, a full disk, a lost rank
  kExitBadConfig = 2,      // nothing was run because of a mistake on the command line or in the configuration
  kExitStopped = 3,        // a file called "stop" in the run's folder; like the next four: with a checkpoint
  kExitPartly = 4,         // levin convert: the file was written, without the parts that could not be translated
  kExitHangup = 129,       // SIGHUP (128 + 1): the terminal closed
  kExitInterrupted = 130,  // Ctrl-C (128 + SIGINT), as shells report it
  kExitUser1 = 138,        // SIGUSR1 (128 + 10): a scheduler's warning
  kExitTerminated = 143,   // SIGTERM (128 + 15): a scheduler took the machine back
};

}  // namespace levin
