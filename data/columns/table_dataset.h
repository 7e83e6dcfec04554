// The rows of a file of columns as samples: numbers, codes of categories, and targets.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/data/columns/column_file.h"
#include "levin/data/columns/table_summary.h"
#include "levin/data/loading/dataset.h"

namespace levin {

/// A file, its path for messages, and the columns that are read. Other columns are not read.
struct TableSource {
  std::shared_ptr<const ColumnFile> file = nullptr;
  std::string path = "";
  std::vector<WantedColumn> features = {};
  std::optional<WantedColumn> target = std::nullopt;
  std::optional<size_t> id = std::nullopt;  // a column that identifies the rows; nullopt: their numbers, from 0

  [[nodiscard]] int64_t rows() const;
  /// Reads columns of a group. Throws DataError.
  [[nodiscard]] std::vector<ColumnValues> read(size_t group, const std::vector<WantedColumn>& wanted) const;
  /// Throws DataError naming the path and the row of a group.
  [[noreturn]] void fail(size_t group, int64_t row, const std::string& what) const;
};

/// The classes of a target column of categories, and the class of each row.
struct TableClasses {
  std::vector<std::string> names = {};
  at::Tensor labels = {};  // (rows) int64
};

/// Reads the target column of the whole file. Throws DataError for a row without a class, which has the class -1 if
/// `may_lack`.
[[nodiscard]] TableClasses read_classes(const TableSource& source, bool may_lack = false);

/// Returns the rows that can be read and, if there is a target column, have a target, (n) int64; logs the others.
[[nodiscard]] at::Tensor find_usable_rows(const TableSource& source);

/// Reads the feature columns, and a target column of numbers, once. `rows`: (n) int64, increasing: the training rows.
/// Throws DataError for a column with more than `max_categories` categories, a number that is infinite, or a training
/// row without a target.
[[nodiscard]] TableSummary summarize(const TableSource& source, const at::Tensor& rows,
                                     const std::vector<std::string>& classes, int64_t max_categories);

/// Samples: "features", the numbers, (columns) of `dtype` with nan for missing ones; with columns of categories
/// "categories", (columns) int64, the codes of TableColumn; with a target "targets", () of `dtype`, or () int64 for a
/// class. A group is decoded once and kept until other groups with `rows_in_memory` rows have been read since; workers
/// share it.
class TableDataset final : public Dataset {
 public:
  /// `lists_damaged`: rows that cannot be read are samples without tensors; otherwise they are not asked for.
  TableDataset(TableSource source, std::shared_ptr<const TableSummary> summary, at::ScalarType dtype,
               int64_t rows_in_memory, bool lists_damaged = false);
  ~TableDataset() override;

  [[nodiscard]] int64_t size() const override { return size_; }
  [[nodiscard]] Batch get(int64_t index) const override;
  [[nodiscard]] bool has_get_batch() const override { return damaged_.empty(); }
  /// Throws DataError naming the path, the row and the column for a target that is missing or an unknown class.
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override;
  [[nodiscard]] std::string sample_id(int64_t index) const override;

 private:
  struct Group;
  struct Cache;
  [[nodiscard]] std::shared_ptr<const Group> decode(size_t group) const;
  [[nodiscard]] std::shared_ptr<const Group> group_of(size_t group) const;
  [[nodiscard]] size_t find_group(int64_t row) const;

  TableSource source_;
  std::shared_ptr<const TableSummary> summary_;
  at::ScalarType dtype_;
  std::map<int64_t, std::string> damaged_ = {};  // rows that cannot be read, with the reason
  std::vector<int64_t> starts_ = {};             // of the groups
  int64_t size_ = 0;
  std::shared_ptr<const BatchStructure> names_ = nullptr;
  std::unique_ptr<Cache> cache_;
};

}  // namespace levin
