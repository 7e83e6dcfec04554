// Tables in Parquet files, or in Arrow's file format (Feather version 2), as data for training:
//
//   data: {class_path: ParquetData, init_args: {path: flights.parquet, target: delay}}
//
// Only the columns that are used are read, and a few row groups are in memory at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/data/columns/table_module.h"

namespace levin {

/// Options of ParquetData.
struct ParquetDataOptions {
  std::string path = "";
  std::string test_path = "";              // of the test and predict stages; "": none
  std::vector<std::string> features = {};  // columns by name, or by number from 0; none: all but the target and the id
  std::vector<std::string> categories = {};  // features that are categories although they hold numbers
  std::string target = "";                   // a column that rows to predict need not have; "": none
  std::string id = "";                       // a column that names the rows in files of predictions; "": their numbers
  std::optional<bool> target_is_class = std::nullopt;  // null: if the target does not hold numbers
  int64_t batch_size = 32;
  double val_fraction = 0.2;  // of the rows of `path`, held out for validation
  int64_t split_seed = 42;    // which ones; independent of the run's seed
  int64_t num_workers = 0;
  bool shuffle = true;            // the training rows; false: in the order of the file
  bool drop_last = false;         // leave out an incomplete last training batch
  bool stratified_split = false;  // the held-out rows have the classes in the file's proportions
  int64_t shuffle_window = 262'144;
  int64_t max_categories = 100'000;
  EnumOption<OnRowError> on_error = OnRowError::raise;
  template <class = void>
  static auto fields() {
    using O = ParquetDataOptions;
    return levin::fields(
        field("path", &O::path, "the Parquet or Arrow file to train and validate on, or its URL")
            .not_empty()
            .ranks_may_differ(),
        field("test_path", &O::test_path, "the file to test and predict on, or its URL; \"\": none").ranks_may_differ(),
        detail::table_fields<O>());
  }
};

/// The rows of a Parquet or Arrow file as batches of TableModule. Strings, dictionaries and bools are categories;
/// integers, floats, decimals, dates and times are numbers; nulls and nan are missing values. setup() throws DataError
/// naming the file, the row group and the column.
class ParquetData final : public TableModule {
 public:
  using Options = ParquetDataOptions;
  explicit ParquetData(ParquetDataOptions options);

 private:
  [[nodiscard]] std::shared_ptr<const ColumnFile> open(const std::string& path) const override;
};

}  // namespace levin
