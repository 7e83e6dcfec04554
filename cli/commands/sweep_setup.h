// Begins a sweep, or opens the one that was begun with the same file.
#pragma once

#include <memory>
#include <string>

#include "levin/cli/sweep/sweep_store.h"
#include "levin/core/value.h"

namespace levin {

/// Reads the sweep file and its run file, checks every value that the sweep may take by the options' own rules, and
/// makes the folder (`folder`: instead of the file's own). A sweep that exists is continued, with new limits if they
/// have changed; anything else that has changed is a problem. Null if there are problems.
[[nodiscard]] std::unique_ptr<SweepStore> open_sweep(const std::string& file, const std::string& folder,
                                                     Problems& problems);

}  // namespace levin
