// What `levin runs` prints: a table that fits a width, or JSON.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "levin/cli/runs/run_list.h"

namespace levin {

// --- The columns of a list of runs by their names, for sorting and filtering.

/// What a column holds for one run: nothing, a number or text. Times and durations are numbers of seconds.
using Cell = std::variant<std::monostate, double, std::string>;

enum class ColumnKind { text, number, time, duration };

/// The columns of a list of runs by the names that users give: name, status, started, duration, …, a metric (its last
/// value; NAME.min and NAME.max), a hyperparameter, a key of the configuration or its last part. Where a name could be
/// several, that is the order; metrics.NAME, hparams.NAME and config.NAME choose.
class RunColumns {
 public:
  explicit RunColumns(const std::vector<ListedRun>& runs);

  struct Column {
    std::string name = "";
    ColumnKind kind = ColumnKind::text;
    std::function<Cell(const ListedRun&)> cell = {};
  };

  /// Throws Error naming the columns that there are; `where` begins the message ("--sort").
  [[nodiscard]] Column find(const std::string& name, const std::string& where) const;

 private:
  [[nodiscard]] bool find_metric(const std::string& name, Column& column) const;
  [[nodiscard]] bool find_option_column(const std::string& name, Column& column) const;

  std::vector<std::string> metrics_ = {};
  std::vector<std::string> hparams_ = {};
  std::vector<std::string> config_ = {};
};

/// A condition on runs: "lr>0.001", "status=failed", "val_loss<0.5", "started>2026-11-01", "duration>1h",
/// "name~resnet". Throws Error if the condition is malformed or no run has the column.
[[nodiscard]] std::function<bool(const ListedRun&)> parse_filter(const std::string& text, const RunColumns& columns);

/// Sorts by a column, descending after "-"; runs without a value come last. Throws Error if no run has the column.
void sort_runs(std::vector<ListedRun>& runs, const std::string& order);

/// How the table of "levin runs" is laid out.
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
