// metrics.csv: a table that grows in rows and in columns, whose header names the columns sorted.
//
// Note [What a new column costs]
// Rows are appended; a new column requires rewriting the file. So that many columns, one after another, cost no more
// than a few times the final file, a file that has been rewritten often delays its rows until it has grown by a third,
// unless everything must be on the disk (`all`).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "levin/loggers/logger.h"

namespace levin {

class MetricsFile {
 public:
  MetricsFile() = default;
  /// Sets the file to write; its contents stay, and rows are appended. Nothing is read or written yet.
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] const std::string& path() const { return path_; }

  /// A row that waits to be written. Throws Error where a name holds control characters.
  void add(const MetricList& metrics, int64_t step);
  [[nodiscard]] int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  /// In the file and waiting.
  [[nodiscard]] int64_t rows() const { return rows_in_file_ + waiting(); }
  /// The names of all rows, sorted.
  [[nodiscard]] std::vector<std::string> columns() const;

  /// Reads how much is in the file, if it has not been read yet. Throws Error.
  void look();
  /// Writes the waiting rows; without `all`, not those whose new columns are too expensive now. Throws Error if not all
  /// of them can be written: a full disk takes the first rows, the others keep waiting, and the file has only complete
  /// rows. A file that was removed or changed by
  /// another program is used as it is, with a warning.
  void write(bool all);
  /// Drops waiting rows beyond the memory limit, the oldest first; returns their number.
  int64_t drop_excess();
  /// Drops all waiting rows; returns their number.
  int64_t drop_waiting();

  /// Goes back to the first `rows` rows under these columns; 0: to none. Returns how many there are.
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

}  // namespace levin
