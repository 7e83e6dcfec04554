// Many runs in one file that any SQLite program reads, also while runs write into it.
//
// Note [One file, many writers]
// The file is in WAL mode: readers never wait, and writers take turns. Rows wait in memory and are written in one
// transaction for many, so that runs share the file without waiting for each other. A run that finds the file locked
// for longer than the busy timeout, even at its start, keeps everything that it has to write and tries again later, as
// CSVLogger does when a disk is full. A process that is killed has lost the rows that waited, and the file stays valid.
// WAL needs memory shared between processes: the file must be on a disk of this machine, not on a network file system.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "levin/core/files/sqlite.h"
#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/core/state.h"
#include "levin/loggers/flush_timer.h"
#include "levin/loggers/log_values.h"
#include "levin/loggers/logger.h"

namespace levin {

// The tables of runs in an SQLite file (docs/sqlite_logger.md lists them), as one run writes them.

/// A value of a run that waits to be written.
struct SqliteRow {
  enum class Table { metrics, texts, tables, histograms, artifacts };
  Table table = Table::metrics;
  std::string name = "";
  LogPoint at = {};
  double value = 0;          // of a metric
  std::string content = "";  // text, a path, or a table or histogram as JSON
};

/// The tables of an SQLite file, as one run writes them. Functions throw SqliteError for what may pass, such as a
/// locked file or a full disk. Not thread-safe.
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

  /// Returns the newest row of the run in each table.
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

/// Options of SQLiteLogger.
struct SQLiteLoggerOptions {
  std::string path = "";
  std::string name = "";
  int64_t flush_logs_every_n_rows = 1000;
  Seconds flush_every = Seconds(5);
  Seconds busy_timeout = Seconds(5);

  template <class = void>
  static auto fields() {
    using O = SQLiteLoggerOptions;
    return levin::fields(
        field("path", &O::path, "the file; empty: runs.sqlite in the trainer's default_root_dir").ranks_may_differ(),
        field("name", &O::name, "name of the run, for people"),
        field("flush_logs_every_n_rows", &O::flush_logs_every_n_rows, "rows kept in memory before they are written")
            .min(1),
        field("flush_every", &O::flush_every, "longest time that a row is kept in memory")
            .check([](Seconds span) { return span.count() > 0; }, "> 0"),
        field("busy_timeout", &O::busy_timeout, "longest wait for another process that writes")
            .check([](Seconds span) { return span.count() >= 0; }, ">= 0"));
  }
};

/// A logger that writes to a file that many runs share (docs/sqlite_logger.md lists its tables). Rows wait in memory
/// for flush_every, or until there are flush_logs_every_n_rows of them; a locked file or a full disk delays them
/// further.
class SQLiteLogger final : public Logger {
 public:
  using Options = SQLiteLoggerOptions;
  explicit SQLiteLogger(Defaults = {}) : SQLiteLogger(SQLiteLoggerOptions()) {}
  explicit SQLiteLogger(SQLiteLoggerOptions options);
  ~SQLiteLogger() override;
  /// Moves the options alone. Must not be called after start().
  SQLiteLogger(SQLiteLogger&& other) noexcept : SQLiteLogger(std::move(other.options_)) {}

  [[nodiscard]] uint32_t takes() const override;
  /// Throws Error if the file is not a database, belongs to another program, or was written by a newer Levin. A file
  /// that is locked, or on a full disk, is opened later.
  void start(const std::string& default_root_dir, bool resume) override;
  void own_folder() override;
  void log_metrics(const MetricList& metrics, const LogPoint& at) override;
  void log_histogram(const std::string& name, const Histogram& histogram, const LogPoint& at) override;
  void log_text(const std::string& name, const std::string& text, const LogPoint& at) override;
  void log_table(const std::string& name, const LogTable& table, const LogPoint& at) override;
  void log_artifact(const std::string& name, const std::string& path, const LogPoint& at) override;
  void log_hyperparams(const ConfigNode& hparams) override;
  void log_final_metrics(const MetricList& metrics, const LogPoint& at) override;
  /// Returns the run and its last row of each table. load_state_dict continues that run, without its later rows, if the
  /// logger was started to resume; otherwise the run is a new one.
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
  void save() override;
  void finalize(const std::string& status) override;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& run() const { return uuid_; }

 private:
  void add(SqliteRow row);
  void open_run();
  void continue_run(const State& saved);
  void write_rows();
  void write_now();
  [[nodiscard]] bool is_waiting() const;
  void report_failure(const std::string& what);

  SQLiteLoggerOptions options_;
  std::string path_ = "";
  std::string folder_ = "";  // of the run: what tells runs of one command apart from others
  std::string uuid_ = "";
  bool may_continue_ = false;
  bool is_open_ = false;                           // the run is in the file, and marked as running
  mutable std::mutex mutex_;                       // the timer's thread writes too
  std::shared_ptr<SqliteStore> store_;             // null until the file can be opened
  std::optional<State> continued_ = std::nullopt;  // a checkpoint's state that is not restored in the file yet
  std::vector<std::pair<std::string, std::string>> hparams_ = {};  // waiting, as the next two are
  MetricList final_metrics_ = {};
  std::deque<SqliteRow> waiting_ = {};
  bool failing_ = false;
  std::string cause_ = "";
  int64_t lost_ = 0;
  Seconds pause_ = Seconds(0);                       // after a failure, before the next attempt
  std::chrono::steady_clock::time_point next_ = {};  // of the next attempt after a failure
  FlushTimer timer_;                                 // last: its thread uses all of this
};

}  // namespace levin
