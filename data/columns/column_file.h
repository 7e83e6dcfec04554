// The interface to a file of columns: Parquet, Arrow's file format (Feather), CSV. The rows of a file are in groups,
// and a group is read at once. The header needs nothing of Levin or LibTorch, because the library that reads Parquet
// (arrow_library.cpp) is compiled without them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace levin {

/// How a column is read: as numbers, or as one of several strings.
enum class ColumnType { number, category };

/// A column of a file.
struct ColumnInfo {
  std::string name;
  ColumnType type = ColumnType::number;  // by the values that it holds
  std::string type_name = "";            // in the file, such as "int64" or "dictionary<string>"
  bool is_supported = true;              // false: neither numbers nor strings, such as a list
  std::string doubt = "";                // why the type may not be what is meant: a sentence
};

/// A column to read, by its index in the file.
struct WantedColumn {
  size_t column = 0;
  ColumnType type = ColumnType::number;
};

/// The values of a column in the rows of a group: `numbers`, or `codes` and `values`.
struct ColumnValues {
  std::vector<double> numbers = {};      // nan: missing
  std::vector<int32_t> codes = {};       // index in `values`; -1: missing
  std::vector<std::string> values = {};  // may hold values that no row has
};

/// A file whose rows can be read group by group, by several threads at once.
class ColumnFile {
 public:
  virtual ~ColumnFile() = default;
  [[nodiscard]] virtual const std::vector<ColumnInfo>& columns() const = 0;
  /// Returns the number of rows of each group.
  [[nodiscard]] virtual const std::vector<int64_t>& group_rows() const = 0;
  /// Reads columns of a group: one entry for each wanted column, each with a value for every row. Returns the error
  /// without the file's path, or "".
  [[nodiscard]] virtual std::string read(size_t group, const std::vector<WantedColumn>& wanted,
                                         std::vector<ColumnValues>& values) const = 0;
  /// Returns the rows that cannot be read, by their number in the file, with the reason. Their values are missing.
  [[nodiscard]] virtual std::map<int64_t, std::string> damaged() const { return {}; }
  /// Returns where a row of a group is, for messages: "line 19", "row 3 of row group 0".
  [[nodiscard]] virtual std::string position_text(size_t group, int64_t row) const = 0;
};

}  // namespace levin
