// Reads CSV files into strings, each field with its position. Quoted fields may contain delimiters, line ends and
// doubled quotes (RFC 4180); LF and CRLF both end a line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace levin {

/// A field and its position, counted from 1.
struct CsvField {
  std::string text;
  int64_t line;
  int64_t column;  // in bytes
};

/// Returns the rows of a file without empty lines. Throws DataError with file:line:column if a quote is not closed,
/// text follows a closing quote, or a row has more or fewer fields than the first.
[[nodiscard]] std::vector<std::vector<CsvField>> read_csv(const std::string& path, char delimiter = ',');

/// Same for a file's `text` in memory; `path` is for messages.
[[nodiscard]] std::vector<std::vector<CsvField>> parse_csv(const std::string& path, const std::string& text,
                                                           char delimiter = ',');

/// Returns the fields of the first row without reading the whole file; none if it is not a regular file.
[[nodiscard]] std::vector<std::string> read_csv_header(const std::string& path, char delimiter = ',');

/// Reads the rows of CSV text in place, without copying fields. The text must outlive the object.
class CsvScanner {
 public:
  struct Field {
    std::string_view raw;  // without the quotes around it; quotes within it are still doubled
    bool is_quoted = false;
    /// Returns the field's text, with single quotes for doubled ones.
    [[nodiscard]] std::string text() const;
  };

  /// `path` is for messages. `position` is the start of a row.
  CsvScanner(std::string path, std::string_view text, char delimiter, size_t position = 0);

  /// Reads the next row that is not an empty line. Returns false at the end. Throws DataError with file:line:column if
  /// a quote is not closed, text follows a closing quote, or, after set_fields(), the number of fields differs.
  [[nodiscard]] bool next(std::vector<Field>& row);
  /// Returns where the row that was read last starts, and where the next one does.
  [[nodiscard]] size_t row_position() const { return row_; }
  [[nodiscard]] size_t position() const { return position_; }
  /// Sets the number of fields that each further row must have; `line` is the line of the row that has them.
  void set_fields(size_t count, int64_t line) {
    fields_ = count;
    fields_line_ = line;
  }
  /// Throws DataError: path:line:column: what. `at` points into the text.
  [[noreturn]] void fail(const char* at, const std::string& what) const;
  /// Returns the line of a position, counted from 1.
  [[nodiscard]] int64_t line_of(size_t position) const;
  /// Continues at `position`, the start of a row.
  void go_to(size_t position) { position_ = position; }
  /// Continues after the row of which next() has thrown, which ends with its first line if its quotes are misplaced.
  void leave_row();
  /// Tells the line of a position, so that the lines of later ones are counted from there.
  void set_line(size_t position, int64_t line) {
    known_position_ = position;
    known_line_ = line;
  }

 private:
  [[nodiscard]] bool at_end() const { return position_ >= text_.size(); }
  [[nodiscard]] bool at_line_end() const;
  [[nodiscard]] Field next_field();
  [[nodiscard]] Field next_quoted();

  std::string path_;
  std::string_view text_;
  char delimiter_;
  size_t position_;
  size_t row_ = 0;
  size_t fields_ = 0;  // 0: any number
  int64_t fields_line_ = 0;
  bool is_in_row_ = false;
  size_t known_position_ = 0;
  int64_t known_line_ = 1;  // of known_position_
};

namespace detail {

using CsvRow = std::vector<CsvField>;

/// Returns the text in quotes, for messages.
[[nodiscard]] std::string quoted(const std::string& text);

/// Throws DataError: path:line:column: what.
[[noreturn]] void fail_at(const std::string& path, int64_t line, int64_t column, const std::string& what);

}  // namespace detail

}  // namespace levin
