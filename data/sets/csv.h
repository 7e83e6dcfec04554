// CSV files as tensors: chosen columns of numbers as features, one column as the target, as number or as class.
// Quoted fields may hold delimiters, line ends and doubled quotes (RFC 4180); LF and CRLF both end a line.
//
//   data: {class_path: CsvData, init_args: {path: iris.csv, target: species, target_is_class: true}}
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/data/data_module.h"
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
        field("classes", &O::classes, "class names in order; none: the names in the file, sorted"));
  }
};

/// The rows of a file. Samples: x ("features"), (features) float32, and with a target y ("targets"), () float32, or ()
/// int64 for a class; numbers are float64 if `dtype` is.
class CsvDataset final : public Dataset {
 public:
  using Options = CsvDatasetOptions;
  /// Reads the file. Throws DataError with file:line:column and the text seen.
  /// `dtype`: of numbers, float32 or float64.
  explicit CsvDataset(CsvDatasetOptions options, at::ScalarType dtype = at::kFloat);

  [[nodiscard]] int64_t size() const override { return data_->size(); }
  [[nodiscard]] Batch get(int64_t index) const override { return data_->get(index); }
  [[nodiscard]] bool has_get_batch() const override { return true; }
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override { return data_->get_batch(indices); }
  [[nodiscard]] Batch get_range(int64_t first, int64_t count) const override { return data_->get_range(first, count); }
  [[nodiscard]] std::string sample_id(int64_t index) const override {
    return ids_.empty() ? std::to_string(index) : ids_.at(static_cast<size_t>(index));
  }

  [[nodiscard]] at::ScalarType dtype() const { return data_->tensors()[0].scalar_type(); }
  [[nodiscard]] const std::vector<std::string>& feature_names() const { return feature_names_; }
  /// Texts of the classes, in the order of their numbers.
  [[nodiscard]] const std::vector<std::string>& classes() const { return classes_; }

 private:
  std::vector<std::string> feature_names_;
  std::vector<std::string> classes_;
  std::vector<std::string> ids_;  // none: the numbers of the rows
  std::shared_ptr<TensorDataset> data_;
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
  bool shuffle = true;            // the training rows; false: in the order of the file
  bool drop_last = false;         // leave out an incomplete last training batch
  bool stratified_split = false;  // the held-out rows have the classes in the file's proportions
  BatchingOptions batching = {};  // of the training rows
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
        field("batching", &O::batching, "weights and stratified, of the training batches"));
  }
};

/// The rows of CSV files, split for training and validation. Batches: x (batch, features) float32 and with a target y,
/// (batch) float32, or int64 for classes; numbers are float64 under 64-true. The constructor throws ConfigError for
/// options that contradict each other, and setup() throws DataError with file:line:column.
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
  [[nodiscard]] std::vector<std::string> label_names() const override { return classes_; }

 private:
  [[nodiscard]] CsvDatasetOptions file_options(const std::string& path) const;
  [[nodiscard]] std::shared_ptr<CsvDataset> all_rows();
  [[nodiscard]] std::shared_ptr<CsvDataset> new_rows(Stage stage);
  [[nodiscard]] at::Tensor labels() const;
  [[nodiscard]] Loaders in_order(const std::shared_ptr<CsvDataset>& rows, const at::Tensor& part,
                                 const char* hook) const;

  CsvDataOptions options_;
  std::vector<std::string> classes_ = {};
  std::shared_ptr<CsvDataset> all_ = nullptr;
  std::shared_ptr<CsvDataset> test_ = nullptr;
  std::shared_ptr<CsvDataset> predict_ = nullptr;
  at::Tensor train_rows_ = {};  // (n) int64
  at::Tensor val_rows_ = {};    // (n) int64
};

}  // namespace levin
