// What `levin runs` prints: a table that fits a width, or JSON.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/runs/run_list.h"

namespace levin {

struct RunTableOptions {
  int width = 80;
  std::vector<std::string> metrics = {};  // besides the main one
};

/// One line per run: name, status, start, duration, the hyperparameters in which the runs differ, best and last of the
/// main metric and of those chosen. Columns that do not fit are left out, and named below the table.
[[nodiscard]] std::string run_table(const std::vector<ListedRun>& runs, const RunTableOptions& options);

/// Everything that is known, as JSON in ASCII: {"runs": [{"name": …, "status": …, "metrics": {…}, …}]}.
[[nodiscard]] std::string runs_as_json(const std::vector<ListedRun>& runs);

/// "2026-11-23 10:57" in local time; "" for kUnknown.
[[nodiscard]] std::string time_text(double seconds);

}  // namespace levin
