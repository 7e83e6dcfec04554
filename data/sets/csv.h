// CSV files as tensors: chosen columns of numbers as features, one column as the target, as number or as class.
// Quoted fields may hold delimiters, line ends and doubled quotes (RFC 4180); LF and CRLF both end a line.
//
//   data: {class_path: CsvData, init_args: {path: iris.csv, target: species, target_is_class: true}}
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/fields.h"
#include "levin/data/data_module.h"
#include "levin/data/loading/batching.h"
#include "levin/data/loading/dataset.h"

namespace levin {

struct CsvDatasetOptions {
  std::string path = "";
  bool header = true;                      // the first row names the columns
  std::string delimiter = ",";             // one character
  std::vector<std::string> features = {};  // columns by name, or by number from 0; none: all but the target
  std::string target = "";                 // a column by name or number; "": none
  bool target_is_class = false;            // y: class numbers of the target's texts; else its numbers
  std::vector<std::string> classes = {};   // texts of the classes in order; none: those in the file, sorted
  template <class = void>
  static auto fields() {
    using O = CsvDatasetOptions;
    return levin::fields(
        field("path", &O::path, "the file").not_empty(), field("header", &O::header, "the first row names the columns"),
        field("delimiter", &O::delimiter, "between the fields")
            .check([](const std::string& d) { return d.size() == 1 && d != "\"" && d != "\n" && d != "\r"; },
                   "one character, no quote or line end"),
        field("features", &O::features, "columns by name, or by number from 0; none: all but the target"),
        field("target", &O::target, "a column by name or number; \"\": none"),
        field("target_is_class", &O::target_is_class, "y: class numbers of the target's texts; else its numbers"),
        field("classes", &O::classes, "texts of the classes in order; none: those in the file, sorted"));
  }
};

/// Samples: x (features) float32 and, with a target, y () float32, or int64 if it is a class.
class CsvDataset final : public Dataset {
 public:
  using Options = CsvDatasetOptions;
  /// Reads the file. Throws DataError with file:line:column and the text seen.
  explicit CsvDataset(CsvDatasetOptions options);

  [[nodiscard]] int64_t size() const override { return data_->size(); }
  [[nodiscard]] Batch get(int64_t index) const override { return data_->get(index); }
  [[nodiscard]] bool has_get_batch() const override { return true; }
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override { return data_->get_batch(indices); }
  [[nodiscard]] Batch get_range(int64_t first, int64_t count) const override { return data_->get_range(first, count); }

  [[nodiscard]] const std::vector<std::string>& feature_names() const { return feature_names_; }
  /// Texts of the classes, in the order of their numbers.
  [[nodiscard]] const std::vector<std::string>& classes() const { return classes_; }

 private:
  std::vector<std::string> feature_names_;
  std::vector<std::string> classes_;
  std::unique_ptr<TensorDataset> data_;
};

struct CsvDataOptions {
  std::string path = "";
  std::string test_path = "";  // of the test and predict stages; "": none
  bool header = true;
  std::string delimiter = ",";
  std::vector<std::string> features = {};  // columns by name, or by number from 0; none: all but the target
  std::string target = "";
  bool target_is_class = false;
  int64_t batch_size = 32;
  double val_fraction = 0.2;  // of the rows of `path`, held out for validation
  int64_t split_seed = 42;    // which ones; independent of the run's seed
  int64_t num_workers = 0;
  bool shuffle = true;            // the training rows
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
        field("features", &O::features, "columns by name, or by number from 0; none: all but the target"),
        field("target", &O::target, "a column by name or number; \"\": none"),
        field("target_is_class", &O::target_is_class, "y: class numbers of the target's texts; else its numbers"),
        field("batch_size", &O::batch_size, "samples of a batch").min(1),
        field("val_fraction", &O::val_fraction, "of the rows, held out for validation").min(0.0).below(1.0),
        field("split_seed", &O::split_seed, "which rows are held out").min(0),
        field("num_workers", &O::num_workers, "threads that fetch batches ahead").min(0).max(1024).ranks_may_differ(),
        field("shuffle", &O::shuffle, "a new order of the training rows every epoch"),
        field("stratified_split", &O::stratified_split, "the held-out rows have the classes in the file's proportions"),
        field("batching", &O::batching, "weights and stratified, of the training batches"));
  }
};

class CsvData final : public DataModule {
 public:
  using Options = CsvDataOptions;
  explicit CsvData(CsvDataOptions options);

  void setup(Stage stage) override;
  std::shared_ptr<Loader> train_dataloader() override;
  Loaders val_dataloader() override;
  Loaders test_dataloader() override;
  Loaders predict_dataloader() override { return test_dataloader(); }

 private:
  [[nodiscard]] CsvDatasetOptions file_options(const std::string& path) const;
  [[nodiscard]] std::shared_ptr<CsvDataset> all_rows();
  [[nodiscard]] at::Tensor labels() const;

  CsvDataOptions options_;
  std::shared_ptr<CsvDataset> all_ = nullptr;
  std::shared_ptr<CsvDataset> test_ = nullptr;
  at::Tensor train_rows_ = {};  // (n) int64
  at::Tensor val_rows_ = {};    // (n) int64
};

}  // namespace levin
