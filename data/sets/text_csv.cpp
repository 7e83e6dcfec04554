#include "levin/data/sets/text_csv.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "levin/core/error.h"
#include "levin/data/loading/batching.h"
#include "levin/data/loading/stratified.h"
#include "levin/data/sets/csv_columns.h"
#include "levin/data/sets/csv_reader.h"
#include "levin/data/text/text_reader.h"

namespace levin {

namespace {

using detail::CsvRow;

constexpr size_t kBooksOfOldTestament = 39;

// "1Sa3:10 And the LORD came, …": the book precedes the chapter.
CsvRow verse_row(const std::string& line, int64_t number, std::set<std::string>& books) {
  const size_t colon = line.find(':'), blank = line.find(' ');
  size_t chapter = colon;
  while (chapter != std::string::npos && chapter > 0 && line[chapter - 1] >= '0' && line[chapter - 1] <= '9') --chapter;
  if (colon == std::string::npos || blank == std::string::npos || blank < colon || chapter == 0 || chapter == colon) {
    detail::fail_at(kjv_path(), number, 1,
                    "expected a verse as \"Ge1:1 In the beginning …\", saw \"" + cut_text(line) + "\".");
  }
  const std::string book = line.substr(0, chapter);
  books.insert(book);
  const auto column = [](size_t at) { return static_cast<int64_t>(at) + 1; };
  return {{books.size() > kBooksOfOldTestament ? "new" : "old", number, 1},
          {book, number, 1},
          {line.substr(chapter, blank - chapter), number, column(chapter)},
          {line.substr(blank + 1), number, column(blank + 1)}};
}

// The package's file is a title and a line for each verse.
std::vector<CsvRow> verses() {
  std::error_code ignored;
  if (!std::filesystem::exists(kjv_path(), ignored)) {
    throw DataError("TextCsv: there is no " + kjv_path() +
                    ". Install Debian's bible-kjv-text, or set .path to a CSV file.");
  }
  const std::string text = read_text(kjv_path());
  std::vector<CsvRow> rows = {{{"testament", 1, 1}, {"book", 1, 1}, {"verse", 1, 1}, {"text", 1, 1}}};
  std::set<std::string> books;
  int64_t number = 2;
  for (size_t begin = text.find('\n') + 1; begin != 0 && begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) rows.push_back(verse_row(text.substr(begin, end - begin), number, books));
    begin = end + 1;
  }
  return rows;
}

}  // namespace

struct TextCsv::Table {
  std::string path;
  std::vector<CsvRow> rows;
  size_t first_row;
  size_t text, label;  // columns
};

TextCsv::TextCsv(TextCsvOptions options) : options_(checked(std::move(options), "TextCsvOptions")) {
  if (options_.path.empty() && !options_.header) {
    throw ConfigError("TextCsvOptions.header: the verses that are read without a .path have one. Leave it true.");
  }
  check_batching(options_.batching, "TextCsvOptions.batching");
  save_hyperparameters(options_);
}

TextCsv::Table TextCsv::read(const std::string& path) const {
  Table table;
  table.path = path.empty() ? kjv_path() : path;
  table.rows = path.empty() ? verses() : read_csv(path, options_.delimiter[0]);
  table.first_row = options_.header ? 1 : 0;
  if (table.rows.size() <= table.first_row) throw DataError(table.path + ": it holds no rows of data.");
  const std::vector<std::string> names = detail::column_names(table.rows, options_.header);
  table.text = detail::find_column(names, options_.text, table.path);
  table.label = detail::find_column(names, options_.label, table.path);
  for (size_t i = table.first_row; i < table.rows.size(); ++i) {
    for (const size_t column : {table.text, table.label}) {
      const CsvField& field = table.rows[i][column];
      if (field.text.find_first_not_of(" \t\r\n") != std::string::npos) continue;
      detail::fail_at(table.path, field.line, field.column,
                      "column \"" + names[column] + "\" is empty. Fill it in or leave the row out.");
    }
  }
  return table;
}

std::shared_ptr<PaddedTexts> TextCsv::encode(const Table& table) const {
  const Padding padding = options_.batching.by_length() ? Padding::longest : Padding::max_length;
  auto texts = std::make_shared<PaddedTexts>(options_.max_length, pad_token(*tokenizer_), padding);
  for (size_t i = table.first_row; i < table.rows.size(); ++i) {
    const CsvRow& row = table.rows[i];
    const std::vector<int32_t> tokens = encode_sequence(*tokenizer_, row[table.text].text, options_.max_length);
    texts->add(tokens, detail::class_in(row[table.label], classes_, table.path));
  }
  return texts;
}

void TextCsv::setup(Stage stage) {
  if (tokenizer_ == nullptr) tokenizer_ = make_sequence_tokenizer(options_.tokenizer);
  const bool trains = stage == Stage::fit || stage == Stage::validate;
  if (classes_.empty()) classes_ = options_.classes;
  if ((trains && texts_ == nullptr) || classes_.empty()) {
    const Table table = read(options_.path);
    if (classes_.empty()) classes_ = detail::sorted_classes(table.rows, table.first_row, table.label);
    if (trains) texts_ = encode(table);
  }
  if (!trains) {
    if (!options_.test_path.empty() && test_ == nullptr) test_ = encode(read(options_.test_path));
    return;
  }
  const int64_t all = texts_->size();
  const auto val = static_cast<int64_t>(static_cast<double>(all) * options_.val_fraction);
  const Split split = random_split(all, val, static_cast<uint64_t>(options_.split_seed),
                                   options_.stratified_split ? texts_->labels() : at::Tensor());
  train_rows_ = split.train;
  val_rows_ = split.held_out;
}

void TextCsv::teardown(Stage /*stage*/) {
  texts_ = test_ = nullptr;  // tokenizer and classes stay, because predictions are decoded afterwards
}

const std::vector<std::string>& TextCsv::classes() const {
  if (classes_.empty()) throw DataError("TextCsv: call setup() before classes().");
  return classes_;
}

const Tokenizer& TextCsv::tokenizer() const {
  if (tokenizer_ == nullptr) throw DataError("TextCsv: call setup() before tokenizer().");
  return *tokenizer_;
}

std::shared_ptr<Loader> TextCsv::loader(const std::shared_ptr<PaddedTexts>& texts, const at::Tensor& rows, bool shuffle,
                                        const BatchingOptions& batching) const {
  if (texts == nullptr) throw DataError("TextCsv: call setup() with the stage before asking for its loaders.");
  return batched_loader({texts, rows, texts->labels()},
                        {.batch_size = options_.batch_size, .shuffle = shuffle, .num_workers = options_.num_workers},
                        batching);
}

std::shared_ptr<Loader> TextCsv::train_dataloader() {
  return loader(texts_, train_rows_, options_.shuffle, options_.batching);
}

Loaders TextCsv::val_dataloader() {
  if (val_rows_.defined() && val_rows_.size(0) == 0) return {};
  const BatchingOptions by_length{.bucket_by_length = options_.batching.by_length(),
                                  .max_tokens = options_.batching.max_tokens};
  return loader(texts_, val_rows_, false, by_length);
}

// In the file's order, in which predictions are expected.
Loaders TextCsv::test_dataloader() {
  if (options_.test_path.empty()) return {};
  return loader(test_, {}, false, {.max_tokens = options_.batching.max_tokens});
}

std::vector<std::string> TextCsv::prediction_text(const at::Tensor& prediction) const {
  if (prediction.dim() != 1 || prediction.scalar_type() != at::kLong) return {};
  std::vector<std::string> texts;
  for (int64_t i = 0; i < prediction.size(0); ++i) {
    const auto label = prediction.select(0, i).item<int64_t>();
    const bool known = label >= 0 && label < static_cast<int64_t>(classes_.size());
    texts.push_back(known ? classes_[static_cast<size_t>(label)] : std::to_string(label));
  }
  return texts;
}

}  // namespace levin
