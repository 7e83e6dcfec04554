// Columns and classes of a CSV file, for its data sets. `path` is for messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "levin/data/sets/csv_reader.h"

namespace levin::detail {

/// Those of the first row, or "0", "1", … without a header.
[[nodiscard]] std::vector<std::string> column_names(const std::vector<CsvRow>& rows, bool header);

/// By name, or by number from 0. Throws DataError listing the names.
[[nodiscard]] size_t find_column(const std::vector<std::string>& names, const std::string& wanted,
                                 const std::string& path);

/// The distinct texts of a column: numbers in numeric order, others in alphabetical order.
[[nodiscard]] std::vector<std::string> sorted_classes(const std::vector<CsvRow>& rows, size_t first_row, size_t column);

/// The number of the field's class. Throws DataError with file:line:column if it is none of `classes`.
[[nodiscard]] int64_t class_in(const CsvField& field, const std::vector<std::string>& classes, const std::string& path);

}  // namespace levin::detail
