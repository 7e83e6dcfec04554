// Sends what a run could not send to its server while it was active.
#pragma once

#include <string>
#include <vector>

#include "levin/core/duration.h"
#include "levin/loggers/outbox.h"

namespace levin {

/// The folders at or below `folder` that hold an outbox: mlflow.json beside outbox.jsonl.
[[nodiscard]] std::vector<std::string> outbox_folders(const std::string& folder);

/// Sends what waits in one of them. Returns when all is sent, when the server refuses the run, or after `timeout`;
/// what is left stays there. Throws Error if the run is still active, or if the folder has no outbox.
OutboxReport send_outbox(const std::string& folder, Seconds timeout);

}  // namespace levin
