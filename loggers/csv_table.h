// The text of a table of numbers as CSV, for metrics.csv.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace levin {

/// Returns a number as Python prints it, which readers of these files expect.
[[nodiscard]] std::string csv_number(double value);

/// Returns a string as a field, in quotes if it needs them (RFC 4180).
[[nodiscard]] std::string csv_field(const std::string& text);

/// Returns the header line of these columns with its line end, in quotes where names need them.
[[nodiscard]] std::string csv_header(const std::vector<std::string>& columns);

/// The contents of a file. The incomplete last line of a killed process is left out.
struct CsvTable {
  std::string text = "";
  std::vector<std::string> columns = {};
  std::vector<std::string_view> rows = {};  // in `text`
};

/// Reads the file; returns an empty table if it does not exist. Throws Error if it cannot be read.
[[nodiscard]] CsvTable read_csv_table(const std::string& path);

/// Returns header and first rows of the table, with its cells moved to `columns`.
[[nodiscard]] std::string csv_text(const CsvTable& table, size_t rows, const std::vector<std::string>& columns);

}  // namespace levin
