// Tables in CSV files as data for training: columns of numbers and of categories, with missing values.
//
//   data: {class_path: TableCsv, init_args: {path: houses.csv, target: price}}
//
// A file may be larger than the memory: it is memory-mapped and parsed in groups of 65,536 rows.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/data/columns/table_module.h"
#include "levin/data/files/csv_file.h"

namespace levin {

/// Options of TableCsv.
struct TableCsvOptions {
  std::string path = "";
  std::string test_path = "";  // of the test and predict stages; "": none
  bool header = true;
  std::string delimiter = ",";
  // What pandas takes for missing values.
  std::vector<std::string> missing = {"",     "#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN",
                                      "-nan", "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL",
                                      "NaN",  "None",   "n/a",      "nan",  "null"};
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
    using O = TableCsvOptions;
    return levin::fields(
        field("path", &O::path, "the file to train and validate on, or its URL").not_empty().ranks_may_differ(),
        field("test_path", &O::test_path, "the file to test and predict on, or its URL; \"\": none").ranks_may_differ(),
        field("header", &O::header, "the first row names the columns"),
        field("delimiter", &O::delimiter, "between the fields")
            .check([](const std::string& d) { return d.size() == 1 && d != "\"" && d != "\n" && d != "\r"; },
                   "one character, no quote or line end"),
        field("missing", &O::missing, "the strings that mark a missing value"), detail::table_fields<O>());
  }
};

/// The rows of a CSV file as batches of TableModule. A column holds numbers if all values in `path` that are not
/// missing are numbers, else categories. setup() throws DataError with file:line:column.
class TableCsv final : public TableModule {
 public:
  using Options = TableCsvOptions;
  explicit TableCsv(TableCsvOptions options);

 private:
  [[nodiscard]] std::shared_ptr<const ColumnFile> open(const std::string& path) const override;

  TableCsvOptions options_;
};

}  // namespace levin
