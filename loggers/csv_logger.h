// metrics.csv and hparams.yaml in <save_dir>/<name>/version_N, as Lightning's CSVLogger writes them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/loggers/append_file.h"
#include "levin/loggers/logger.h"
#include "levin/loggers/logger_folder.h"

namespace levin {

// Note [What a new column costs]
// Rows are appended; a new column requires rewriting the file. So that many columns, one after another, cost no more
// than a few times the final file, a file that has been rewritten often delays its rows until it has grown by a third,
// unless everything must be on the disk (`all`).

/// metrics.csv: a table that grows in rows and columns; the header names the columns in alphabetical order. Not
/// thread-safe.
class MetricsFile {
 public:
  MetricsFile() = default;
  /// Sets the file to write; its contents stay, and rows are appended. Nothing is read or written yet.
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Adds a row, which waits to be written. Throws Error where a name holds control characters.
  void add(const MetricList& metrics, int64_t step);
  [[nodiscard]] int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  /// Returns the number of rows in the file and waiting.
  [[nodiscard]] int64_t rows() const { return rows_in_file_ + waiting(); }
  /// Returns the names in all rows, sorted.
  [[nodiscard]] std::vector<std::string> columns() const;

  /// Reads the size of the table in the file, if it has not been read yet. Throws Error.
  void look();
  /// Writes the waiting rows; without `all`, not those whose new columns are too expensive now. Throws Error if not all
  /// of them can be written: a full disk takes the first rows, the others keep waiting, and the file has only complete
  /// rows. Warns if a different program has removed or changed the file, and continues it unchanged.
  void write(bool all);
  /// Drops waiting rows beyond the memory limit, the oldest first; returns their number.
  int64_t drop_excess();
  /// Drops all waiting rows; returns their number.
  int64_t drop_waiting();

  /// Cuts the table back to the first `rows` rows under these columns. Returns the number of rows that are left.
  int64_t cut(int64_t rows, const std::vector<std::string>& columns);

 private:
  using Row = std::vector<std::pair<uint32_t, double>>;  // column, value

  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
  };

  uint32_t column(const std::string& name);
  [[nodiscard]] bool lacks_columns() const;
  [[nodiscard]] bool is_affordable() const;
  [[nodiscard]] uint64_t expected_size() const;
  void read(int64_t most_rows);
  void note_change();
  void append(size_t most_rows);
  void keep_what_fits(int fd, std::string_view text);
  void rewrite(size_t row_count);
  void rewrite_what_fits();
  [[nodiscard]] size_t rows_before_a_new_column() const;
  void append_row(const Row& row, std::string& text) const;
  void set_header();
  void forget_first(size_t count);
  void remember(int fd);

  std::string path_ = "";
  std::unordered_map<std::string, uint32_t> names_ = {};  // of all columns: numbers in the order of their first row
  std::vector<uint32_t> header_ = {};                     // the columns of the file in its order
  std::vector<size_t> place_ = {};                        // of a column in the header, by its number
  std::vector<bool> is_counter_ = {};                     // the same: a column of whole numbers
  std::deque<Row> waiting_ = {};
  size_t waiting_cells_ = 0;
  int64_t rows_in_file_ = 0;
  bool known_ = false;       // the file has been looked at
  bool appendable_ = false;  // it is there, and holds whole rows of this table and nothing else
  Identity left_ = {};       // as this object left it
  uint64_t rewritten_ = 0;   // bytes that new columns have cost so far
};

/// Options of CSVLogger, by the names of Lightning's.
struct CSVLoggerOptions {
  std::string save_dir = "";  // "": the trainer's default_root_dir
  std::string name = "levin_logs";
  std::string version = "";  // "": the first free version_N
  int64_t flush_logs_every_n_steps = 100;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("save_dir", &CSVLoggerOptions::save_dir, "folder for all runs; empty: the trainer's default_root_dir"),
        field("name", &CSVLoggerOptions::name, "folder of the experiment below save_dir; may be empty"),
        field("version", &CSVLoggerOptions::version, "folder of the run below name; empty: the first free version_N"),
        field("flush_logs_every_n_steps", &CSVLoggerOptions::flush_logs_every_n_steps,
              "rows kept in memory before they are written")
            .min(1));
  }
};

/// A logger that writes rows to metrics.csv. A full disk does not end a run: rows are kept in memory, written when
/// there is room again, and counted if they are lost. Rows are appended; when a new column appears the file is
/// rewritten with the columns sorted by name.
class CSVLogger final : public Logger {
 public:
  using Options = CSVLoggerOptions;
  explicit CSVLogger(Defaults = {}) : CSVLogger(CSVLoggerOptions()) {}
  explicit CSVLogger(CSVLoggerOptions options);
  ~CSVLogger() override;

  void start(const std::string& default_root_dir, bool resume) override;
  void start_again(const std::string& default_root_dir, bool resume) override;
  void own_folder() override;
  [[nodiscard]] std::vector<std::string> earlier_log_dirs() const override { return folder_.earlier(); }
  [[nodiscard]] std::string log_dir() const override { return folder_.path(); }
  /// Throws Error where a name holds a line end or another control character.
  void log_metrics(const MetricList& metrics, const LogPoint& at) override;
  void log_hyperparams(const ConfigNode& hparams) override;
  void save() override;
  void finalize(const std::string& status) override;
  /// Returns rows and columns; load_state_dict cuts metrics.csv back to them.
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::vector<std::string> files() const override { return {metrics_path()}; }

  [[nodiscard]] std::string metrics_path() const { return file_.path(); }

 private:
  void set_file();
  void write(bool all);

  CSVLoggerOptions options_;
  LoggerFolder folder_;
  MetricsFile file_ = {};
  DiskPatience patience_ = {"CSVLogger", "row", {"row of metrics", "rows of metrics"}};
};

}  // namespace levin
