// The folders that a run writes into: its loggers' folders, locked against other runs.
#pragma once

#include <string>
#include <vector>

#include "levin/trainer/run/run.h"

namespace levin {

/// Starts the loggers, once per run, and the log, and locks their folders for the running entry point. Throws Error
/// naming the process of another run that uses a folder. Every rank calls it; rank 0 holds the locks.
void start_loggers(Run& run);

/// Locks additional folders, in which a run continues without a logger. Only rank 0 calls it.
void claim_folders(Run& run, const std::vector<std::string>& folders);

/// Copy what is new in the run's folders to their stores (default_root_dir: s3://…): upload_soon in the background;
/// finish_uploads, for the last time, before it returns. Throw StorageError. Only rank 0 has such folders.
void upload_soon(const EntryPoint& entry);
void finish_uploads(Run& run);

/// Removes, when the run is over, the folders that its loggers created and that are unused, because it failed before
/// its first batch, or only evaluated. The metrics of an evaluation are kept only by a logger that was configured; the
/// default one's are printed. Never throws.
void remove_unused_folders(Run& run);

/// Closes the log and unlocks all folders.
void release_folders(EntryPoint& entry);

}  // namespace levin
