#include "levin/data/sets/text_csv.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "levin/core/files/csv.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/data/loading/batching.h"
#include "levin/data/loading/stratified.h"
#include "levin/data/sets/csv_columns.h"

namespace levin {

using detail::CsvRow;

struct TextCsv::Table {
  std::string path;
  std::vector<CsvRow> rows;
  size_t first_row;
  size_t text;  // a column
  std::optional<size_t> label, id;
};

TextCsv::TextCsv(TextCsvOptions options) : options_(checked(std::move(options), "TextCsvOptions")) {
  check_batching(options_.batching, "TextCsvOptions.batching", options_.drop_last);
  save_hyperparameters(options_);
}

std::string TextCsv::read_document(const std::string& path) const {
  if (path.empty()) throw ConfigError("TextCsvOptions.path: expected the name of a CSV file, got none.");
  return read_input(path);
}

TextCsv::Table TextCsv::read(const std::string& path, bool may_lack_labels) const {
  Table table;
  table.path = path.empty() ? "the text" : path;
  table.rows = parse_csv(table.path, read_document(path), options_.delimiter[0]);
  table.first_row = options_.header ? 1 : 0;
  if (table.rows.size() <= table.first_row) throw DataError(table.path + ": it holds no rows of data.");
  const std::vector<std::string> names = detail::column_names(table.rows, options_.header);
  detail::CsvColumns columns{{options_.text}, options_.label, options_.id};
  if (may_lack_labels) {
    columns = detail::columns_of_new_file(
        columns, options_.header, detail::read_column_names(options_.path, options_.header, options_.delimiter[0]),
        names, true, table.path);
    if (columns.features.empty()) columns.features = detail::other_columns(names, columns);  // the text alone
  }
  table.text = detail::find_column(names, columns.features[0], table.path);
  if (!columns.target.empty()) table.label = detail::find_column(names, columns.target, table.path);
  if (may_lack_labels && !columns.id.empty()) table.id = detail::find_column(names, columns.id, table.path);
  for (size_t i = table.first_row; i < table.rows.size(); ++i) {
    for (const size_t column : {table.text, table.label.value_or(table.text)}) {
      const CsvField& field = table.rows[i][column];
      if (field.text.find_first_not_of(" \t\r\n") != std::string::npos) continue;
      if (may_lack_labels && column != table.text) {
        table.label.reset();
        break;
      }
      detail::fail_at(table.path, field.line, field.column,
                      "column \"" + names[column] + "\" is empty. Fill it in or leave the row out.");
    }
  }
  return table;
}

std::shared_ptr<PaddedTexts> TextCsv::encode(const Table& table, bool may_lack_labels) const {
  const Padding padding = options_.batching.by_length() ? Padding::longest : Padding::max_length;
  auto texts = std::make_shared<PaddedTexts>(options_.max_length, pad_token(*tokenizer_), padding);
  const detail::ClassNumbers numbers(classes_);
  for (size_t i = table.first_row; i < table.rows.size(); ++i) {
    const CsvRow& row = table.rows[i];
    const std::vector<int32_t> tokens = encode_sequence(*tokenizer_, row[table.text].text, options_.max_length);
    const int64_t label = !table.label      ? -1
                          : may_lack_labels ? numbers.find(row[*table.label].text)
                                            : numbers.of(row[*table.label], table.path);
    texts->add(tokens, label, table.id ? row[*table.id].text : "");
  }
  return texts;
}

void TextCsv::setup(Stage stage) {
  if (tokenizer_ == nullptr) tokenizer_ = make_sequence_tokenizer(options_.tokenizer);
  const bool trains = stage == Stage::fit || stage == Stage::validate;
  if (classes_.empty()) classes_ = options_.classes;
  predicts_ = stage == Stage::predict;
  if (predicts_) return;
  if ((trains && texts_ == nullptr) || classes_.empty()) {
    const Table table = read(options_.path);
    if (classes_.empty()) classes_ = detail::sorted_classes(table.rows, table.first_row, *table.label);
    if (trains) texts_ = encode(table);
  }
  if (!trains) {
    if (!options_.test_path.empty() && test_ == nullptr) test_ = encode(read(options_.test_path));
    return;
  }
  const int64_t all = texts_->size();
  const auto val = static_cast<int64_t>(static_cast<double>(all) * options_.val_fraction);
  const Split split = random_split(all, val, static_cast<uint64_t>(options_.split_seed),
                                   options_.stratified_split ? texts_->labels() : at::Tensor(), !options_.shuffle);
  train_rows_ = split.train;
  val_rows_ = split.held_out;
}

void TextCsv::teardown(Stage /*stage*/) {
  texts_ = test_ = nullptr;  // tokenizer and classes stay, because predictions are decoded afterwards
}

// Without a checkpoint that has them, the classes of the training file, if it is there.
const std::vector<std::string>& TextCsv::known_classes() const {
  if (!classes_.empty() || !predicts_) return classes_;
  try {
    const Table table = read(options_.path);
    classes_ = detail::sorted_classes(table.rows, table.first_row, *table.label);
  } catch (const Error&) {
    std::error_code ignored;
    if (options_.path.empty() || std::filesystem::exists(options_.path, ignored)) throw;
  }
  return classes_;
}

std::vector<std::string> TextCsv::label_names() const {
  return known_classes();
}

State TextCsv::state_dict() const {
  State state;
  if (!classes_.empty()) state.set("classes", classes_);
  return state;
}

// Labels that were read have the numbers of their own file's classes.
void TextCsv::load_state_dict(const State& saved) {
  if (!predicts_ || !options_.classes.empty() || !saved.has("classes")) return;
  classes_ = saved.get<std::vector<std::string>>("classes");
  test_ = nullptr;
}

const std::vector<std::string>& TextCsv::classes() const {
  if (known_classes().empty()) throw DataError("TextCsv: call setup() before classes().");
  return classes_;
}

const Tokenizer& TextCsv::tokenizer() const {
  if (tokenizer_ == nullptr) throw DataError("TextCsv: call setup() before tokenizer().");
  return *tokenizer_;
}

std::shared_ptr<Loader> TextCsv::loader(const std::shared_ptr<PaddedTexts>& texts, const at::Tensor& rows,
                                        DataLoaderOptions options, const BatchingOptions& batching) const {
  if (texts == nullptr) throw DataError("TextCsv: call setup() with the stage before asking for its loaders.");
  options.batch_size = options_.batch_size;
  options.num_workers = options_.num_workers;
  return batched_loader({texts, rows, texts->labels()}, options, batching);
}

std::shared_ptr<Loader> TextCsv::train_dataloader() {
  return loader(texts_, train_rows_, {.shuffle = options_.shuffle, .drop_last = options_.drop_last}, options_.batching);
}

Loaders TextCsv::val_dataloader() {
  if (val_rows_.defined() && val_rows_.size(0) == 0) return {};
  const BatchingOptions by_length{.bucket_by_length = options_.batching.by_length(),
                                  .max_tokens = options_.batching.max_tokens};
  return loader(texts_, val_rows_, {}, by_length);
}

// In the file's order, in which predictions are expected.
Loaders TextCsv::test_dataloader() {
  if (options_.test_path.empty()) return {};
  return loader(test_, {}, {}, {.max_tokens = options_.batching.max_tokens});
}

Loaders TextCsv::predict_dataloader() {
  if (!predicts_ || options_.test_path.empty()) return test_dataloader();
  if (test_ == nullptr) {
    if (known_classes().empty()) {
      detail::warn_of_unknown_classes("TextCsv", options_.path);
    }
    test_ = encode(read(options_.test_path, /*may_lack_labels=*/true), /*may_lack_labels=*/true);
  }
  return test_dataloader();
}

}  // namespace levin
