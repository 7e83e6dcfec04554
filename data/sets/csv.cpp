#include "levin/data/sets/csv.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "levin/core/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/sampler.h"
#include "levin/data/loading/stratified.h"
#include "levin/data/sets/csv_columns.h"
#include "levin/data/sets/csv_reader.h"

namespace levin {

namespace {

using detail::class_in;
using detail::column_names;
using detail::fail_at;
using detail::find_column;
using detail::quoted;
using detail::sorted_classes;
using Row = detail::CsvRow;

float number_in(const CsvField& field, const std::string& name, const std::string& path) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  const char* first = std::find_if_not(field.text.data(), field.text.data() + field.text.size(), is_blank);
  const char* last = field.text.data() + field.text.size();
  while (last > first && is_blank(last[-1])) --last;
  if (last - first > 1 && *first == '+' && first[1] != '-') ++first;
  double value = 0;
  const auto [end, code] = std::from_chars(first, last, value);
  if (code == std::errc() && end == last && first != last) return static_cast<float>(value);
  fail_at(path, field.line, field.column,
          "expected a number in column " + quoted(name) + ", saw " + quoted(field.text) + ".");
}

at::Tensor feature_tensor(const std::vector<Row>& rows, size_t first_row, const std::vector<size_t>& columns,
                          const std::vector<std::string>& names, const std::string& path) {
  at::Tensor x = at::empty({static_cast<int64_t>(rows.size() - first_row), static_cast<int64_t>(columns.size())},
                           at::TensorOptions().dtype(at::kFloat));
  float* to = x.mutable_data_ptr<float>();
  for (size_t i = first_row; i < rows.size(); ++i) {
    for (const size_t column : columns) *to++ = number_in(rows[i][column], names[column], path);
  }
  return x;
}

at::Tensor class_tensor(const std::vector<Row>& rows, size_t first_row, size_t column,
                        const std::vector<std::string>& classes, const std::string& path) {
  at::Tensor y = at::empty({static_cast<int64_t>(rows.size() - first_row)}, at::TensorOptions().dtype(at::kLong));
  int64_t* to = y.mutable_data_ptr<int64_t>();
  for (size_t i = first_row; i < rows.size(); ++i) *to++ = class_in(rows[i][column], classes, path);
  return y;
}

}  // namespace

CsvDataset::CsvDataset(CsvDatasetOptions given) {
  const CsvDatasetOptions options = checked(std::move(given), "CsvDatasetOptions");
  const std::vector<Row> rows = read_csv(options.path, options.delimiter[0]);
  const size_t first_row = options.header ? 1 : 0;
  if (rows.size() <= first_row) throw DataError(options.path + ": it holds no rows of data.");
  const std::vector<std::string> names = column_names(rows, options.header);

  const bool has_target = !options.target.empty();
  const size_t target = has_target ? find_column(names, options.target, options.path) : names.size();
  std::vector<size_t> columns;
  for (const auto& name : options.features) columns.push_back(find_column(names, name, options.path));
  for (size_t i = 0; options.features.empty() && i < names.size(); ++i) {
    if (i != target) columns.push_back(i);
  }
  for (const size_t column : columns) feature_names_.push_back(names[column]);

  std::vector<at::Tensor> tensors = {feature_tensor(rows, first_row, columns, names, options.path)};
  if (has_target && options.target_is_class) {
    classes_ = options.classes.empty() ? sorted_classes(rows, first_row, target) : options.classes;
    tensors.push_back(class_tensor(rows, first_row, target, classes_, options.path));
  } else if (has_target) {
    tensors.push_back(feature_tensor(rows, first_row, {target}, names, options.path).squeeze(1));
  }
  const std::vector<std::string> fields =
      has_target ? std::vector<std::string>{"features", "targets"} : std::vector<std::string>{"features"};
  data_ = std::make_unique<TensorDataset>(std::move(tensors), fields);
}

CsvData::CsvData(CsvDataOptions options) : options_(checked(std::move(options), "CsvDataOptions")) {
  check_batching(options_.batching, "CsvDataOptions.batching");
  const bool by_class =
      options_.stratified_split || options_.batching.stratified || options_.batching.weights == SampleWeights::balanced;
  if (by_class && !(options_.target_is_class && !options_.target.empty())) {
    throw ConfigError(
        "CsvDataOptions.target_is_class: stratified_split, batching.stratified and batching.weights need classes. Set "
        "target to their column and target_is_class: true.");
  }
  save_hyperparameters(options_);
}

CsvDatasetOptions CsvData::file_options(const std::string& path) const {
  return {.path = path,
          .header = options_.header,
          .delimiter = options_.delimiter,
          .features = options_.features,
          .target = options_.target,
          .target_is_class = options_.target_is_class};
}

std::shared_ptr<CsvDataset> CsvData::all_rows() {
  if (all_ == nullptr) all_ = std::make_shared<CsvDataset>(file_options(options_.path));
  return all_;
}

at::Tensor CsvData::labels() const {
  return all_->get_range(0, all_->size())[1];  // a view
}

void CsvData::setup(Stage stage) {
  if (stage == Stage::fit || stage == Stage::validate) {
    const int64_t all = all_rows()->size();
    const auto val = static_cast<int64_t>(std::floor(static_cast<double>(all) * options_.val_fraction));
    const Split split = random_split(all, val, static_cast<uint64_t>(options_.split_seed),
                                     options_.stratified_split ? labels() : at::Tensor());
    train_rows_ = split.train;
    val_rows_ = split.held_out;
  } else if (!options_.test_path.empty() && test_ == nullptr) {
    CsvDatasetOptions options = file_options(options_.test_path);
    if (options_.target_is_class) options.classes = all_rows()->classes();  // class numbers as in training
    test_ = std::make_shared<CsvDataset>(std::move(options));
  }
}

std::shared_ptr<Loader> CsvData::train_dataloader() {
  if (!train_rows_.defined()) throw DataError("CsvData: call setup(Stage::fit) before train_dataloader().");
  return batched_loader(
      {all_, train_rows_, options_.target_is_class ? labels() : at::Tensor()},
      {.batch_size = options_.batch_size, .shuffle = options_.shuffle, .num_workers = options_.num_workers},
      options_.batching);
}

Loaders CsvData::val_dataloader() {
  if (!val_rows_.defined()) throw DataError("CsvData: call setup(Stage::fit) before val_dataloader().");
  if (val_rows_.size(0) == 0) return {};
  return std::make_shared<DataLoader>(
      all_, DataLoaderOptions{.batch_size = options_.batch_size, .num_workers = options_.num_workers},
      std::make_shared<SubsetSampler>(val_rows_));
}

Loaders CsvData::test_dataloader() {
  if (options_.test_path.empty()) return {};
  if (test_ == nullptr) throw DataError("CsvData: call setup(Stage::test) before test_dataloader().");
  return std::make_shared<DataLoader>(
      test_, DataLoaderOptions{.batch_size = options_.batch_size, .num_workers = options_.num_workers});
}

}  // namespace levin
