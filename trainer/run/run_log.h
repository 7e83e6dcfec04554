// The lines of a run's log that describe the run; see core/process/log.h.
#pragma once

#include <string>

#include "levin/trainer/run/run.h"

namespace levin {

/// Opens this rank's file in the run's folder ("": the run has none) and describes the run in it.
void start_run_log(Run& run, const std::string& folder);

/// Returns "train: 938 batches of 64, fetched by 2 workers".
[[nodiscard]] std::string loader_text(const char* what, const Loader& loader, int64_t batches);

}  // namespace levin
