// A CSV file of any size: memory-mapped, with an index of its rows that needs half a byte for each. The rows are parsed
// when they are read. What is not a regular file, such as a pipe, is read into memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/core/files/csv.h"
#include "levin/core/options/value.h"
#include "levin/data/files/mapped_file.h"

namespace levin {

/// What happens to a row that cannot be read: the run ends with the error, or the row is left out.
enum class OnRowError { raise, skip };
template <>
struct EnumNames<OnRowError> {
  static constexpr EnumName<OnRowError> names[] = {{"raise", OnRowError::raise}, {"skip", OnRowError::skip}};
};

/// The rows of a file. Reading is allowed from several threads.
class CsvFile {
 public:
  /// Without fields: the row cannot be read.
  using Row = std::vector<CsvScanner::Field>;
  using Visit = std::function<void(const Row&)>;

  /// Opens the file and reads the names of its columns: the first row, or "0", "1", … without a header. Throws
  /// DataError naming the path, or file:line:column.
  CsvFile(const std::string& path, char delimiter, bool header);

  /// Finds the rows and shows each to `visit`. Call it once, before the functions below. Throws DataError with
  /// file:line:column for a row with a different number of fields or a misplaced quote, and if there is no row. With
  /// OnRowError::skip such a row, and one for which `visit` has thrown DataError, is damaged: it is shown without
  /// fields. Throws if no row can be read, or of more than 1000 rows fewer than nine in ten.
  void index(const Visit& visit, OnRowError on_error = OnRowError::raise);

  /// A row that cannot be read.
  struct Damage {
    size_t end = 0;           // position of the row after it
    std::string reason = "";  // file:line:column and what was expected
  };
  /// Returns the damaged rows by their number.
  [[nodiscard]] const std::map<int64_t, Damage>& damaged() const { return damaged_; }

  /// Frees the text and the index, after which only path(), names(), rows() and damaged() may be called.
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
  [[nodiscard]] bool next(CsvScanner& scanner, int64_t number, Row& row) const;
  void note_damage(CsvScanner& scanner, const std::string& reason);
  void check_damage(bool is_end) const;

  std::string path_;
  char delimiter_;
  std::unique_ptr<const MappedFile> mapped_ = nullptr;
  std::string read_ = "";  // the text of a file that cannot be mapped
  std::vector<std::string> names_;
  size_t first_row_ = 0;    // its position
  int64_t first_line_ = 1;  // of the row that says how many fields there are
  int64_t rows_ = 0;
  std::vector<uint64_t> positions_ = {};  // of every kRowsPerPosition-th row
  std::map<int64_t, Damage> damaged_ = {};
  std::pair<size_t, int64_t> counted_ = {0, 1};  // a position and its line
};

/// Reads a number as CsvDataset does: with blanks around it and a plus sign. Returns false if the text is not a number.
[[nodiscard]] bool parse_csv_number(std::string_view text, double& value);

}  // namespace levin
