// Reads CSV files into strings, each field with its position. Quoted fields may contain delimiters, line ends and
// doubled quotes (RFC 4180); LF and CRLF both end a line.
#pragma once

#include <cstdint>
#include <string>
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
[[nodiscard]] std::vector<std::vector<CsvField>> parse_csv(const std::string& path, std::string text,
                                                           char delimiter = ',');

/// Returns the fields of the first row without reading the whole file; none if it is not a regular file.
[[nodiscard]] std::vector<std::string> read_csv_header(const std::string& path, char delimiter = ',');

namespace detail {

using CsvRow = std::vector<CsvField>;

/// Returns the text in quotes, for messages.
[[nodiscard]] std::string quoted(const std::string& text);

/// Throws DataError: path:line:column: what.
[[noreturn]] void fail_at(const std::string& path, int64_t line, int64_t column, const std::string& what);

}  // namespace detail

}  // namespace levin
