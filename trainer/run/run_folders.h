// The folders that a run writes into: where its loggers keep theirs, and that no other run is alive in them.
#pragma once

#include <string>
#include <vector>

#include "levin/trainer/run/run.h"

namespace levin {

/// Starts the loggers, once per run, and takes their folders for the running entry point. Throws Error naming the
/// process that another run of a folder has. Every rank calls it; rank 0 holds the locks.
void start_loggers(Run& run);

/// Takes the folders too; rank 0 alone calls it. For those that a run continues in without a logger's being there.
void claim_folders(Run& run, const std::vector<std::string>& folders);

/// When the run is over: removes the folders that its loggers have made and in which nothing came to be, because it
/// failed before its first batch, or only evaluated and logged nothing. Never throws.
void remove_unused_folders(Run& run);

/// Gives all folders back.
void release_folders(EntryPoint& entry);

}  // namespace levin
