// What the data modules of tables with columns of numbers and categories share: TableCsv and ParquetData.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/data/columns/table_dataset.h"
#include "levin/data/columns/table_summary.h"
#include "levin/data/data_module.h"
#include "levin/data/files/csv_file.h"
#include "levin/data/loading/batching.h"

namespace levin {

namespace detail {

/// The options that data modules of tables share.
struct TableModuleOptions {
  std::string path = "";                   // a file, or its URL
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
  OnRowError on_error = OnRowError::raise;
};

/// Returns the shared part of a data module's options.
template <class O>
TableModuleOptions shared_options(const O& o) {
  return {.path = o.path,
          .test_path = o.test_path,
          .features = o.features,
          .categories = o.categories,
          .target = o.target,
          .id = o.id,
          .target_is_class = o.target_is_class,
          .batch_size = o.batch_size,
          .val_fraction = o.val_fraction,
          .split_seed = o.split_seed,
          .num_workers = o.num_workers,
          .shuffle = o.shuffle,
          .drop_last = o.drop_last,
          .stratified_split = o.stratified_split,
          .shuffle_window = o.shuffle_window,
          .max_categories = o.max_categories,
          .on_error = o.on_error};
}

/// The fields of these options in the options of a data module.
template <class O>
FieldList table_fields() {
  return levin::fields(
      field("features", &O::features, "columns by name, or by number from 0; none: all but the target and the id"),
      field("categories", &O::categories, "the features that are categories although they hold numbers"),
      field("target", &O::target, "a column by name or number, which rows to predict need not have; \"\": none"),
      field("id", &O::id, "a column that names the rows in files of predictions; \"\": their numbers, from 0"),
      field("target_is_class", &O::target_is_class, "null: true for a target that does not hold numbers"),
      row_fields<O>(),
      field("stratified_split", &O::stratified_split, "the held-out rows have the classes in the file's proportions"),
      field("shuffle_window", &O::shuffle_window,
            "training rows that are shuffled together, at least, in whole row groups; memory holds two such windows")
          .min(1),
      field("max_categories", &O::max_categories, "categories of a column; more are an error").min(1),
      field("on_error", &O::on_error,
            "a row that cannot be read, or has no target: raise the error, or skip the row, which a prediction lists"));
}

}  // namespace detail

/// The base of data modules of tables. Batches: "features" (batch, columns), the numbers, float32 (float64 under
/// 64-true) with nan for missing ones; with columns of categories "categories" (batch, columns) int64, their codes
/// (TableColumn); and with a target "targets" (batch), or (batch) int64 for classes. Rows to predict come without
/// targets. Checkpoints have the columns, their types and the codes.
class TableModule : public DataModule {
 public:
  void setup(Stage stage) final;
  void teardown(Stage stage) final;
  std::shared_ptr<Loader> train_dataloader() final;
  Loaders val_dataloader() final;
  Loaders test_dataloader() final;
  Loaders predict_dataloader() final;
  /// Returns the class names, in the order of their numbers.
  [[nodiscard]] std::vector<std::string> label_names() const final;

  /// Returns what the training rows have: of a checkpoint if one was loaded, else of `path`, which it reads once.
  [[nodiscard]] const TableSummary& summary();
  [[nodiscard]] bool has_summary() const { return summary_ != nullptr; }
  [[nodiscard]] State state_dict() const final;
  void load_state_dict(const State& saved) final;

 protected:
  /// `name`: of the class, for messages. Throws ConfigError for options that contradict each other.
  TableModule(std::string name, detail::TableModuleOptions options, bool has_header = true);
  [[nodiscard]] virtual std::shared_ptr<const ColumnFile> open(const std::string& path) const = 0;

 private:
  [[nodiscard]] std::shared_ptr<const ColumnFile> open_table(const std::string& path) const;
  [[nodiscard]] TableSource training_source() const;
  [[nodiscard]] TableSource new_source(const std::string& path, bool reads_target);
  void read_training_file();
  [[nodiscard]] at::Tensor usable_rows(const TableSource& source) const;
  [[nodiscard]] std::shared_ptr<Loader> loader(const TableSource& source, const at::Tensor& rows, bool is_training,
                                               bool lists_damaged = false);

  std::string name_;
  detail::TableModuleOptions options_;
  bool has_header_;
  TableSource train_ = {};
  std::shared_ptr<const ColumnFile> test_ = nullptr;
  std::vector<std::string> classes_ = {};  // of `path`
  at::Tensor train_rows_ = {};             // (n) int64, increasing
  at::Tensor val_rows_ = {};
  std::shared_ptr<const TableSummary> summary_ = nullptr;
};

}  // namespace levin
