// The rows of a CSV file as texts, each field with its place. Quoted fields may hold delimiters, line ends and doubled
// quotes (RFC 4180); LF and CRLF both end a line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace levin {

/// A field and where it is, from 1.
struct CsvField {
  std::string text;
  int64_t line;
  int64_t column;  // in bytes
};

/// The rows of a file; empty lines are left out. Throws DataError with file:line:column if a quote is not closed, text
/// follows a closing quote, or a row has more or fewer fields than the first.
[[nodiscard]] std::vector<std::vector<CsvField>> read_csv(const std::string& path, char delimiter = ',');

/// The texts of the first row, for which the file is not read to its end; none if it is not a regular file.
[[nodiscard]] std::vector<std::string> read_csv_header(const std::string& path, char delimiter = ',');

namespace detail {

using CsvRow = std::vector<CsvField>;

/// In quotes, for messages.
[[nodiscard]] std::string quoted(const std::string& text);

/// Throws DataError: path:line:column: what.
[[noreturn]] void fail_at(const std::string& path, int64_t line, int64_t column, const std::string& what);

}  // namespace detail

}  // namespace levin
