// What the training rows of a table have: the type, the mean and the standard deviation of each column of numbers, the
// values of each column of categories, the classes. It is computed once, saved in checkpoints, and used for all rows
// that the model sees later.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "levin/core/state.h"
#include "levin/data/columns/column_file.h"

namespace levin {

/// A column of the training rows.
struct TableColumn {
  std::string name = "";
  ColumnType type = ColumnType::number;
  double mean = 0;                       // of the numbers that are not missing
  double std = 1;                        // sqrt(mean((x - mean)^2)); 1 if all numbers are equal
  bool has_missing = false;              // in the training rows
  std::vector<std::string> values = {};  // the categories, sorted; value i has the code i + 1

  /// Returns the number of codes: 0 for values that no training row has, the values, and, if a training row lacks a
  /// value, one for missing values.
  [[nodiscard]] int64_t num_codes() const { return 1 + std::ssize(values) + (has_missing ? 1 : 0); }
};

/// The columns that a model reads, as found in the training rows.
struct TableSummary {
  std::vector<TableColumn> features = {};
  TableColumn target = {};                     // no name: there is none; a category: its values are the classes
  std::vector<std::string> file_columns = {};  // all columns of the training file

  [[nodiscard]] std::vector<TableColumn> of_type(ColumnType type) const;
  [[nodiscard]] State state_dict() const;
  /// Throws CheckpointError for a state that is not a table's.
  [[nodiscard]] static TableSummary from(const State& saved);
};

/// The sizes that a model has to know.
struct TableSizes {
  int64_t numbers = 0;              // columns of numbers
  std::vector<int64_t> codes = {};  // of each column of categories
  int64_t classes = 0;              // of the target; 0: it is a number
  bool has_target = false;

  [[nodiscard]] static TableSizes of(const TableSummary& summary);
  /// Needs only the values of a saved state, not its tensors. Throws CheckpointError for a state that is not a table's.
  [[nodiscard]] static TableSizes of(const State& saved);

 private:
  void add(ColumnType type, int64_t num_codes);
};

/// Finds the mean and the standard deviation of numbers that come in parts, with a sum of squares for each part (Chan,
/// Golub and LeVeque 1979).
class MomentSums {
 public:
  void add(const std::vector<double>& numbers);
  [[nodiscard]] double mean() const { return mean_; }
  [[nodiscard]] double std() const;

 private:
  int64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;  // of the differences from the mean
};

}  // namespace levin
