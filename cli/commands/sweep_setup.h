// Begins a sweep, or opens the one that was begun with the same file.
#pragma once

#include <memory>

#include "levin/cli/commands/sweep_words.h"
#include "levin/cli/sweep/sweep_store.h"
#include "levin/core/value.h"

namespace levin {

/// Reads the sweep file and its run file with the command line's overrides, checks every value that the sweep may take
/// by the options' own rules, and makes the folder. A sweep that exists is continued, with new limits if they have
/// changed; anything else that has changed is a problem. Null if there are problems. Of several processes that begin
/// the same sweep at once, one makes it.
[[nodiscard]] std::unique_ptr<SweepStore> open_sweep(const SweepWords& words, Problems& problems);

}  // namespace levin
