// How an entry point ends: teardown, and handling of exceptions.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// Calls the teardown hooks that have not been called yet in this entry point; rethrows their exceptions.
void tear_down(Run& run);

/// The last values to the loggers, and their finalize.
void end_logs(Run& run, const std::string& status);

/// In a catch block: calls the on_exception hooks, closes what the run has opened, and rethrows. LibTorch's errors
/// become levin::Error with the place where they occurred. If something else fails meanwhile, it is reported as a
/// warning, the rest is still done, and the caller gets the first exception.
[[noreturn]] void fail_run(Run& run);

}  // namespace levin
