// The tables of runs in an SQLite file (docs/logging.md lists them), as one run writes them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "levin/core/sqlite.h"
#include "levin/core/state.h"
#include "levin/loggers/log_values.h"

namespace levin {

/// A value of a run that waits to be written.
struct SqliteRow {
  enum class Table { metrics, texts, tables, histograms, artifacts };
  Table table = Table::metrics;
  std::string name = "";
  LogPoint at = {};
  double value = 0;          // of a metric
  std::string content = "";  // a text, a path; JSON of a table and of a histogram
};

class SqliteStore {
 public:
  /// Opens the file, and makes the tables of a new one. Throws Error naming the file if it is not a database, another
  /// program's, or of a newer format; SqliteError for what may pass.
  SqliteStore(const std::string& path, Seconds patience);

  /// Begins a run, or continues the one with this id.
  void open_run(const std::string& uuid, const std::string& name, const std::string& folder);
  [[nodiscard]] bool has_run(const std::string& uuid, const std::string& folder);
  /// Runs of the folder that are "running" but whose process on this machine has ended become "killed".
  void mark_killed(const std::string& folder);

  /// Writes the first `count` rows in one transaction: all of them, or none. Throws SqliteError.
  void write(const std::deque<SqliteRow>& rows, size_t count);
  void write_hparams(const std::vector<std::pair<std::string, std::string>>& hparams);
  void write_final_metrics(const MetricList& metrics);
  void end_run(const std::string& status);
  /// Removes the run and all that it has.
  void remove_run();

  /// The newest row of the run in each table.
  [[nodiscard]] State position() const;
  /// Removes the run's rows after that position; an empty one: all.
  void cut(const State& position);

 private:
  void make_tables();
  void insert(const SqliteRow& row);
  void find_last_rows();
  int64_t number_of(const std::string& name);

  SqliteFile file_;
  int64_t run_ = 0;
  std::unordered_map<std::string, int64_t> names_ = {};
  std::vector<SqliteStatement> inserts_ = {};  // by table
  std::array<int64_t, 5> last_rows_ = {};      // by table: the run's newest
};

}  // namespace levin
