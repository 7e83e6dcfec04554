// A CSV file as columns of numbers and strings.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "levin/data/columns/column_file.h"
#include "levin/data/files/csv_file.h"

namespace levin {

/// Opens a CSV file of any size, which stays memory-mapped. A column holds numbers if all of its values except those
/// in `missing` are numbers, else strings; a column without values holds numbers. Throws DataError with
/// file:line:column; with OnRowError::skip a row that cannot be read is damaged.
[[nodiscard]] std::shared_ptr<const ColumnFile> open_csv_columns(const std::string& path, char delimiter, bool header,
                                                                 const std::vector<std::string>& missing,
                                                                 OnRowError on_error = OnRowError::raise);

}  // namespace levin
