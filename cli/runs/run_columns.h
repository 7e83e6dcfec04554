// The columns of a list of runs by their names, for sorting and filtering.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "levin/cli/runs/run_list.h"

namespace levin {

/// What a column holds for one run: nothing, a number or a text. Times and durations are numbers of seconds.
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
/// "name~resnet". Throws Error that says what is wrong with the text, or that there is no such column.
[[nodiscard]] std::function<bool(const ListedRun&)> parse_filter(const std::string& text, const RunColumns& columns);

/// Sorts by a column, descending after "-"; runs without a value come last. Throws Error if there is no such column.
void sort_runs(std::vector<ListedRun>& runs, const std::string& order);

}  // namespace levin
