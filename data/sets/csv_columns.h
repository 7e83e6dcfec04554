// Columns and classes of a CSV file, for its data sets. `path` is for messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "levin/core/files/csv.h"

namespace levin::detail {

/// Returns the names in the first row, or "0", "1", … without a header.
[[nodiscard]] std::vector<std::string> column_names(const std::vector<CsvRow>& rows, bool header);

/// Returns the index of a column given by name, or by number from 0. Throws DataError listing the names.
[[nodiscard]] size_t find_column(const std::vector<std::string>& names, const std::string& wanted,
                                 const std::string& path);

/// Returns values without duplicates: numbers in numeric order, others in alphabetical order.
[[nodiscard]] std::vector<std::string> sorted_classes(std::vector<std::string> values);

/// Returns the distinct values of a column in that order.
[[nodiscard]] std::vector<std::string> sorted_classes(const std::vector<CsvRow>& rows, size_t first_row, size_t column);

/// Reads only the first row of a file for its column names; returns none if it is not a regular file.
[[nodiscard]] std::vector<std::string> read_column_names(const std::string& path, bool header, char delimiter);

/// The columns that a data set takes from a file, by name or number.
struct CsvColumns {
  std::vector<std::string> features = {};  // none: all but the two below
  std::string target = "";                 // "": none
  std::string id = "";                     // "": none
};

/// Returns all columns of a file except the target and the id, which it may lack.
[[nodiscard]] std::vector<std::string> other_columns(const std::vector<std::string>& names, const CsvColumns& columns);

/// Returns the same columns for a new file. `training` and `own` are the names in the training file and in the new one;
/// none: unknown. With a header, columns are found by their names, regardless of other columns and of their order. With
/// `may_lack_target`, the target becomes "" if the new file has no such column; without a header, this is the case if
/// it has one column fewer than the training file. Throws DataError with `path`, the new file's, if it lacks a column.
[[nodiscard]] CsvColumns columns_of_new_file(const CsvColumns& columns, bool header,
                                             const std::vector<std::string>& training,
                                             const std::vector<std::string>& own, bool may_lack_target,
                                             const std::string& path);

/// Maps class names to their numbers, which are indices in the list. The list must outlive this object.
class ClassNumbers {
 public:
  explicit ClassNumbers(const std::vector<std::string>& classes);
  /// Returns -1 for an unknown class.
  [[nodiscard]] int64_t find(const std::string& text) const;
  /// Returns the message for an unknown class.
  [[nodiscard]] std::string unknown_text(const std::string& text) const;
  /// Throws DataError with file:line:column if the field is none of the classes.
  [[nodiscard]] int64_t of(const CsvField& field, const std::string& path) const;

 private:
  const std::vector<std::string>& classes_;
  std::unordered_map<std::string_view, int64_t> numbers_;
};

}  // namespace levin::detail
