// How an entry point ends: teardown, and handling of exceptions.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// Calls the teardown hooks that have not been called yet in this entry point; rethrows their exceptions.
void tear_down(Run& run);

/// Writes the last values to the loggers, and calls their finalize. `error`: why the run has failed; "": it has not.
void end_logs(Run& run, const std::string& status, const std::string& error = "");

/// Calls the on_exception hooks, closes what the run has opened, and rethrows. Called in a catch block. LibTorch's
/// errors become levin::Error with the hook, epoch and batch. If something else fails meanwhile, it is reported as a
/// warning, the rest is still done, and the caller gets the first exception.
[[noreturn]] void fail_run(Run& run);

}  // namespace levin
