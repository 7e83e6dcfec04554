// Texts and their classes from a CSV file, as input of an encoder.
//
//   data: {class_path: TextCsv, init_args: {path: reviews.csv, text: review, label: stars, max_length: 128}}
//
// Batches: x (batch, max_length) int64, `<s> tokens </s>` and padding in the numbers of data/text/sentence_piece.h (or
// the ids of a tokenizer.json, with its own special tokens), and y (batch) int64, the class. With batching by length, x
// is as wide as the longest text of the batch.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/data/data_module.h"
#include "levin/data/loading/batching.h"
#include "levin/data/sets/csv.h"
#include "levin/data/text/padded_texts.h"
#include "levin/data/text/sentence_piece.h"

namespace levin {

/// Options of TextCsv.
struct TextCsvOptions {
  std::string path = "";       // to train and validate on
  std::string test_path = "";  // of the test and predict stages; "": none
  bool header = true;
  std::string delimiter = ",";
  std::string text = "text";              // a column by name, or by number from 0
  std::string label = "label";            // a column by name or number; may be missing in the rows to predict
  std::string id = "";                    // a column that names the rows in files of predictions; "": their numbers
  std::vector<std::string> classes = {};  // class names in order; none: the names in `path`, sorted
  std::string tokenizer = "byte";         // "byte", a SentencePiece model (.model), or a tokenizer.json or its folder
  int64_t max_length = 128;               // tokens of a sample, <s> and </s> included; longer text is truncated
  int64_t batch_size = 32;
  double val_fraction = 0.1;  // of the rows of `path`, held out for validation
  int64_t split_seed = 42;    // which ones; independent of the run's seed
  int64_t num_workers = 0;
  bool shuffle = true;            // the training rows; false: in the order of the file
  bool drop_last = false;         // leave out an incomplete last training batch
  bool stratified_split = false;  // the held-out rows have the classes in the file's proportions
  BatchingOptions batching = {};  // by length also for the other stages
  template <class = void>
  static auto fields() {
    using O = TextCsvOptions;
    return levin::fields(
        field("path", &O::path, "the file to train and validate on").ranks_may_differ(),
        field("test_path", &O::test_path, "the file to test and predict on; \"\": none").ranks_may_differ(),
        field("header", &O::header, "the first row names the columns"),
        field("delimiter", &O::delimiter, "between the fields")
            .check([](const std::string& d) { return d.size() == 1 && d != "\"" && d != "\n" && d != "\r"; },
                   "one character, no quote or line end"),
        field("text", &O::text, "the text: a column by name, or by number from 0").not_empty(),
        field("label", &O::label, "their classes: a column by name or number, which rows to predict need not have")
            .not_empty(),
        field("id", &O::id, "a column that names the rows in files of predictions; \"\": their numbers, from 0"),
        field("classes", &O::classes, "class names in order; none: the names in path, sorted"),
        field("tokenizer", &O::tokenizer,
              "byte, a SentencePiece model, a file that ends in .model, or Hugging Face's tokenizer.json or its folder")
            .not_empty(),
        field("max_length", &O::max_length,
              "tokens of a sample with <s> and </s>: longer text is truncated, shorter text padded")
            .min(2),
        detail::row_fields<O>(),
        field("stratified_split", &O::stratified_split, "the held-out rows have the classes in the file's proportions"),
        field("batching", &O::batching,
              "weights, stratified: of the training batches; bucket_by_length, max_tokens: of all stages"));
  }
};

/// Documents and their classes from CSV files, as padded tokens. The constructor throws ConfigError for options that
/// contradict each other.
class TextCsv : public DataModule {
 public:
  using Options = TextCsvOptions;
  explicit TextCsv(Defaults = {}) : TextCsv(TextCsvOptions()) {}
  explicit TextCsv(TextCsvOptions options);

  /// Throws DataError with file:line:column for an unusable row: a different number of fields than the first
  /// row, a quote that is not closed, no text, no class or, in test_path, one that is not known. To predict, rows
  /// need no class, and the file is read by predict_dataloader(), which knows the classes from a checkpoint; only
  /// without one the training file is read for them, if it exists.
  void setup(Stage stage) override;
  void teardown(Stage stage) override;
  std::shared_ptr<Loader> train_dataloader() override;
  Loaders val_dataloader() override;
  Loaders test_dataloader() override;
  Loaders predict_dataloader() override;
  [[nodiscard]] std::vector<std::string> label_names() const override;
  /// The class names.
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;

  [[nodiscard]] const TextCsvOptions& options() const { return options_; }
  /// Returns the class names in the order of their numbers. This function and the next need setup() first.
  [[nodiscard]] const std::vector<std::string>& classes() const;
  [[nodiscard]] const Tokenizer& tokenizer() const;

 protected:
  /// Returns the text of the CSV file `path`, which is .path or .test_path; a derived class may take it from elsewhere.
  /// Throws DataError.
  [[nodiscard]] virtual std::string read_document(const std::string& path) const;

 private:
  struct Table;
  [[nodiscard]] Table read(const std::string& path, bool may_lack_labels = false) const;
  [[nodiscard]] const std::vector<std::string>& known_classes() const;
  [[nodiscard]] std::shared_ptr<PaddedTexts> encode(const Table& table, bool may_lack_labels = false) const;
  [[nodiscard]] std::shared_ptr<Loader> loader(const std::shared_ptr<PaddedTexts>& texts, const at::Tensor& rows,
                                               DataLoaderOptions options, const BatchingOptions& batching) const;

  TextCsvOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_ = nullptr;
  mutable std::vector<std::string> classes_ = {};  // none: unknown
  bool predicts_ = false;
  std::shared_ptr<PaddedTexts> texts_ = nullptr;  // of path
  std::shared_ptr<PaddedTexts> test_ = nullptr;   // of test_path, for the test or to predict
  at::Tensor train_rows_ = {};                    // (n) int64, of texts_
  at::Tensor val_rows_ = {};
};

}  // namespace levin
