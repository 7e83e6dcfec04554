// Sends what a run could not send to its server while it was active.
#pragma once

#include <string>
#include <vector>

#include "levin/core/options/units.h"
#include "levin/loggers/outbox.h"

namespace levin {

/// Returns the folders at or below `folder` that have an outbox: mlflow.json and outbox.jsonl.
[[nodiscard]] std::vector<std::string> outbox_folders(const std::string& folder);

/// Sends the waiting events of a folder. Returns when all are sent, when the server refuses the run, or after
/// `timeout`; the remaining events stay. Throws Error if the run is still active, or if the folder has no outbox.
OutboxReport send_outbox(const std::string& folder, Seconds timeout);

}  // namespace levin
