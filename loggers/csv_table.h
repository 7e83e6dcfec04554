// The text of a table of numbers as CSV, for metrics.csv.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace levin {

/// A number as Python spells it, which is what readers of these files expect.
[[nodiscard]] std::string csv_number(double value);

/// A text as a field, in quotes where it needs them (RFC 4180).
[[nodiscard]] std::string csv_field(const std::string& text);

/// A header line of these columns, with quotes where a name needs them, and its line end.
[[nodiscard]] std::string csv_header(const std::vector<std::string>& columns);

/// A table as it is on the disk. An incomplete line of a killed process is left out.
struct CsvTable {
  std::string text = "";
  std::vector<std::string> columns = {};
  std::vector<std::string_view> rows = {};  // in `text`
};

/// Empty if the file does not exist; throws Error if it cannot be read.
[[nodiscard]] CsvTable read_csv_table(const std::string& path);

/// The table's first rows under other columns: header and rows.
[[nodiscard]] std::string csv_text(const CsvTable& table, size_t rows, const std::vector<std::string>& columns);

}  // namespace levin
