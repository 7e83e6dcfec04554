// How an entry point ends: teardown, and what an exception does on its way out.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// Calls teardown on everybody on whom it was not called yet in this entry point; throws what one of them throws.
void tear_down(Run& run);

/// In a catch block: lets everybody hear of the exception in flight, closes what the run has opened, and throws the
/// exception on. LibTorch's errors become levin::Error with the place where they struck. Whatever else fails meanwhile,
/// the rest is still done: it is reported as a warning, and the caller gets the first exception.
[[noreturn]] void fail_run(Run& run);

}  // namespace levin
