// A CSV file of any size: memory-mapped, with an index of its rows that needs half a byte for each. The rows are parsed
// when they are read. What is not a regular file, such as a pipe, is read into memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/core/files/csv.h"
#include "levin/data/files/mapped_file.h"

namespace levin {

/// The rows of a file. Reading is allowed from several threads.
class CsvFile {
 public:
  using Row = std::vector<CsvScanner::Field>;
  using Visit = std::function<void(const Row&)>;

  /// Opens the file and reads the names of its columns: the first row, or "0", "1", … without a header. Throws
  /// DataError naming the path, or file:line:column.
  CsvFile(const std::string& path, char delimiter, bool header);

  /// Finds the rows and shows each to `visit`. Call it once, before the functions below. Throws DataError with
  /// file:line:column for a row with a different number of fields or a misplaced quote, and if there is no row.
  void index(const Visit& visit);

  /// Frees the text and the index, after which only path(), names() and rows() may be called.
  void close();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] uint64_t bytes() const { return text().size(); }
  /// Shows `count` rows from row `first` on.
  void read(int64_t first, int64_t count, const Visit& visit) const;
  /// Returns the line of a row, counted from 1, by counting from the start of the file.
  [[nodiscard]] int64_t line_of(int64_t row) const;
  /// Throws DataError with file:line:column of a field of this file.
  [[noreturn]] void fail(const CsvScanner::Field& field, const std::string& what) const;

 private:
  [[nodiscard]] std::string_view text() const;
  [[nodiscard]] CsvScanner at_row(int64_t row) const;

  std::string path_;
  char delimiter_;
  std::unique_ptr<const MappedFile> mapped_ = nullptr;
  std::string read_ = "";  // the text of a file that cannot be mapped
  std::vector<std::string> names_;
  size_t first_row_ = 0;    // its position
  int64_t first_line_ = 1;  // of the row that says how many fields there are
  int64_t rows_ = 0;
  std::vector<uint64_t> positions_ = {};  // of every kRowsPerPosition-th row
};

/// Reads a number as CsvDataset does: with blanks around it and a plus sign. Returns false if the text is not a number.
[[nodiscard]] bool parse_csv_number(std::string_view text, double& value);

}  // namespace levin
