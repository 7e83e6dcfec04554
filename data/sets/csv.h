// CSV files as tensors: chosen columns of numbers as features, one column as the target, as number or as class.
// Quoted fields may hold delimiters, line ends and doubled quotes (RFC 4180); LF and CRLF both end a line.
//
//   data: {class_path: CsvData, init_args: {path: iris.csv, target: species, target_is_class: true}}
//
// The numbers of a file up to max_in_memory are kept as tensors. A larger file stays memory-mapped, with an index of
// its rows that needs half a byte for each, and the rows of a batch are parsed when they are read. Both give the same
// samples, and both check every row when the file is opened.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/data/data_module.h"
#include "levin/data/files/csv_file.h"
#include "levin/data/loading/batching.h"
#include "levin/data/loading/dataset.h"

namespace levin {

/// Options of CsvDataset.
struct CsvDatasetOptions {
  std::string path = "";
  bool header = true;                      // the first row names the columns
  std::string delimiter = ",";             // one character
  std::vector<std::string> features = {};  // columns by name, or by number from 0; none: all but the target and the id
  std::string target = "";                 // a column by name or number; "": none
  std::string id = "";                     // a column that identifies the rows; "": their numbers, from 0
  bool target_is_class = false;            // y: class numbers of the target's values; else its numbers
  std::vector<std::string> classes = {};   // class names in order; none: the names in the file, sorted
  ByteSize max_in_memory = {1LL << 30};    // a larger file is not kept as tensors
  EnumOption<OnRowError> on_error = OnRowError::raise;
  template <class = void>
  static auto fields() {
    using O = CsvDatasetOptions;
    return levin::fields(
        field("path", &O::path, "the file").not_empty(), field("header", &O::header, "the first row names the columns"),
        field("delimiter", &O::delimiter, "between the fields")
            .check([](const std::string& d) { return d.size() == 1 && d != "\"" && d != "\n" && d != "\r"; },
                   "one character, no quote or line end"),
        field("features", &O::features, "columns by name, or by number from 0; none: all but the target and the id"),
        field("target", &O::target, "a column by name or number; \"\": none"),
        field("id", &O::id, "a column that identifies the rows; \"\": their numbers, from 0"),
        field("target_is_class", &O::target_is_class, "y: class numbers of the target's values; else its numbers"),
        field("classes", &O::classes, "class names in order; none: the names in the file, sorted"),
        field("max_in_memory", &O::max_in_memory, "a larger file is memory-mapped, and its rows are parsed when read"),
        field("on_error", &O::on_error, "a row that cannot be read: raise the error, or skip the row"));
  }
};

namespace detail {
struct CsvRows;
}  // namespace detail

/// The rows of a file. Samples: x ("features"), (features) float32, and with a target y ("targets"), () float32, or ()
/// int64 for a class; numbers are float64 if `dtype` is. With OnRowError::skip a row that cannot be read is a sample
/// without tensors.
class CsvDataset final : public Dataset {
 public:
  using Options = CsvDatasetOptions;
  /// Reads the file. Throws DataError with file:line:column and the text seen.
  /// `dtype`: of numbers, float32 or float64.
  explicit CsvDataset(CsvDatasetOptions options, at::ScalarType dtype = at::kFloat);

  [[nodiscard]] int64_t size() const override;
  [[nodiscard]] Batch get(int64_t index) const override;
  /// Returns false if a row cannot be read, unless asks_for_readable_rows() was called.
  [[nodiscard]] bool has_get_batch() const override;
  /// Says that samples will only be asked for which readable_rows() lists.
  void asks_for_readable_rows() { lists_damaged_ = false; }
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override;
  [[nodiscard]] Batch get_range(int64_t first, int64_t count) const override;
  [[nodiscard]] std::string sample_id(int64_t index) const override;

  /// Returns the numbers of the rows that can be read, (n) int64.
  [[nodiscard]] at::Tensor readable_rows() const;
  [[nodiscard]] at::ScalarType dtype() const;
  [[nodiscard]] const std::vector<std::string>& feature_names() const { return feature_names_; }
  /// Texts of the classes, in the order of their numbers.
  [[nodiscard]] const std::vector<std::string>& classes() const;
  /// Returns the class of every row, (rows) int64, -1: it cannot be read. Requires a target that is a class.
  [[nodiscard]] at::Tensor labels() const;

 private:
  bool lists_damaged_ = true;
  std::vector<std::string> feature_names_;
  std::shared_ptr<const detail::CsvRows> rows_;
  std::vector<std::string> ids_;         // none: the numbers of the rows, or the file is not in memory
  std::shared_ptr<TensorDataset> data_;  // null: the file is not in memory
};

/// Options of CsvData.
struct CsvDataOptions {
  std::string path = "";
  std::string test_path = "";  // of the test and predict stages; "": none
  bool header = true;
  std::string delimiter = ",";
  std::vector<std::string> features = {};  // columns by name, or by number from 0; none: all but the target and the id
  std::string target = "";                 // may be missing in the rows to predict
  std::string id = "";                     // a column that names the rows in files of predictions; "": their numbers
  bool target_is_class = false;
  int64_t batch_size = 32;
  double val_fraction = 0.2;  // of the rows of `path`, held out for validation
  int64_t split_seed = 42;    // which ones; independent of the run's seed
  int64_t num_workers = 0;
  bool shuffle = true;                   // the training rows; false: in the order of the file
  bool drop_last = false;                // leave out an incomplete last training batch
  bool stratified_split = false;         // the held-out rows have the classes in the file's proportions
  BatchingOptions batching = {};         // of the training rows
  ByteSize max_in_memory = {1LL << 30};  // a larger file is not kept as tensors
  EnumOption<OnRowError> on_error = OnRowError::raise;
  template <class = void>
  static auto fields() {
    using O = CsvDataOptions;
    return levin::fields(
        field("path", &O::path, "the file to train and validate on").not_empty().ranks_may_differ(),
        field("test_path", &O::test_path, "the file to test and predict on; \"\": none").ranks_may_differ(),
        field("header", &O::header, "the first row names the columns"),
        field("delimiter", &O::delimiter, "between the fields, one character"),
        field("features", &O::features, "columns by name, or by number from 0; none: all but the target and the id"),
        field("target", &O::target, "a column by name or number, which rows to predict need not have; \"\": none"),
        field("id", &O::id, "a column that names the rows in files of predictions; \"\": their numbers, from 0"),
        field("target_is_class", &O::target_is_class, "y: class numbers of the target's values; else its numbers"),
        detail::row_fields<O>(),
        field("stratified_split", &O::stratified_split, "the held-out rows have the classes in the file's proportions"),
        field("batching", &O::batching, "weights and stratified, of the training batches"),
        field("max_in_memory", &O::max_in_memory, "a larger file is memory-mapped, and its rows are parsed when read"),
        field("on_error", &O::on_error,
              "a row that cannot be read: raise the error, or skip the row, which a prediction lists"));
  }
};

/// The rows of CSV files, split for training and validation. Batches: x (batch, features) float32 and with a target y,
/// (batch) float32, or int64 for classes; numbers are float64 under 64-true. The constructor throws ConfigError for
/// options that contradict each other, and setup() throws DataError with file:line:column. To predict, the file is read
/// by predict_dataloader(), which knows classes and columns from a checkpoint; only without one the training file is
/// read for them, if it exists.
class CsvData final : public DataModule {
 public:
  using Options = CsvDataOptions;
  explicit CsvData(CsvDataOptions options);

  void setup(Stage stage) override;
  std::shared_ptr<Loader> train_dataloader() override;
  Loaders val_dataloader() override;
  Loaders test_dataloader() override;
  Loaders predict_dataloader() override;
  /// Returns the class names, after setup().
  [[nodiscard]] std::vector<std::string> label_names() const override;
  /// The class names, and the columns of the training file.
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;

 private:
  [[nodiscard]] bool has_classes() const { return options_.target_is_class && !options_.target.empty(); }
  [[nodiscard]] const std::vector<std::string>& known_classes() const;
  [[nodiscard]] CsvDatasetOptions file_options(const std::string& path) const;
  [[nodiscard]] std::shared_ptr<CsvDataset> all_rows();
  [[nodiscard]] std::shared_ptr<CsvDataset> new_rows(Stage stage);
  [[nodiscard]] at::Tensor labels() const;
  [[nodiscard]] Loaders in_order(const std::shared_ptr<CsvDataset>& rows, const at::Tensor& part,
                                 const char* hook) const;

  CsvDataOptions options_;
  mutable std::vector<std::string> classes_ = {};  // none: unknown
  std::vector<std::string> columns_ = {};          // of the training file; none: unknown
  bool predicts_ = false;
  std::shared_ptr<CsvDataset> all_ = nullptr;
  std::shared_ptr<CsvDataset> test_ = nullptr;
  std::shared_ptr<CsvDataset> predict_ = nullptr;
  at::Tensor train_rows_ = {};  // (n) int64
  at::Tensor val_rows_ = {};    // (n) int64
};

}  // namespace levin
