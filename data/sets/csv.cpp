#include "levin/data/sets/csv.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "levin/core/files/csv.h"
#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/sampler.h"
#include "levin/data/loading/stratified.h"
#include "levin/data/sets/csv_columns.h"

namespace levin {

namespace {

using detail::ClassNumbers;
using detail::column_names;
using detail::fail_at;
using detail::find_column;
using detail::quoted;
using detail::sorted_classes;
using Row = detail::CsvRow;

double number_in(const CsvField& field, const std::string& name, const std::string& path) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  const char* first = std::find_if_not(field.text.data(), field.text.data() + field.text.size(), is_blank);
  const char* last = field.text.data() + field.text.size();
  while (last > first && is_blank(last[-1])) --last;
  if (last - first > 1 && *first == '+' && first[1] != '-') ++first;
  double value = 0;
  const auto [end, code] = std::from_chars(first, last, value);
  if (code == std::errc() && end == last && first != last) return value;
  fail_at(path, field.line, field.column,
          "expected a number in column " + quoted(name) + ", saw " + quoted(field.text) + ".");
}

template <class Number>
void read_numbers(const std::vector<Row>& rows, size_t first_row, const std::vector<size_t>& columns,
                  const std::vector<std::string>& names, const std::string& path, at::Tensor& x) {
  auto* to = x.mutable_data_ptr<Number>();
  for (size_t i = first_row; i < rows.size(); ++i) {
    for (const size_t column : columns) *to++ = static_cast<Number>(number_in(rows[i][column], names[column], path));
  }
}

at::Tensor feature_tensor(const std::vector<Row>& rows, size_t first_row, const std::vector<size_t>& columns,
                          const std::vector<std::string>& names, const std::string& path, at::ScalarType dtype) {
  at::Tensor x = at::empty({static_cast<int64_t>(rows.size() - first_row), static_cast<int64_t>(columns.size())},
                           at::TensorOptions().dtype(dtype));
  dtype == at::kDouble ? read_numbers<double>(rows, first_row, columns, names, path, x)
                       : read_numbers<float>(rows, first_row, columns, names, path, x);
  return x;
}

at::Tensor class_tensor(const std::vector<Row>& rows, size_t first_row, size_t column,
                        const std::vector<std::string>& classes, const std::string& path) {
  const ClassNumbers numbers(classes);
  at::Tensor y = at::empty({static_cast<int64_t>(rows.size() - first_row)}, at::TensorOptions().dtype(at::kLong));
  int64_t* to = y.mutable_data_ptr<int64_t>();
  for (size_t i = first_row; i < rows.size(); ++i) *to++ = numbers.of(rows[i][column], path);
  return y;
}

}  // namespace

CsvDataset::CsvDataset(CsvDatasetOptions given, at::ScalarType dtype) {
  const CsvDatasetOptions options = checked(std::move(given), "CsvDatasetOptions");
  if (dtype != at::kFloat && dtype != at::kDouble) {
    throw ConfigError(std::string("CsvDataset: numbers are read as float32 or float64, not as ") +
                      c10::toString(dtype) + ". Convert the batches instead.");
  }
  const std::vector<Row> rows = read_csv(options.path, options.delimiter[0]);
  const size_t first_row = options.header ? 1 : 0;
  if (rows.size() <= first_row) throw DataError(options.path + ": it holds no rows of data.");
  const std::vector<std::string> names = column_names(rows, options.header);

  const bool has_target = !options.target.empty(), has_id = !options.id.empty();
  const size_t target = has_target ? find_column(names, options.target, options.path) : names.size();
  const size_t id = has_id ? find_column(names, options.id, options.path) : names.size();
  std::vector<size_t> columns;
  for (const auto& name : options.features) columns.push_back(find_column(names, name, options.path));
  for (size_t i = 0; options.features.empty() && i < names.size(); ++i) {
    if (i != target && i != id) columns.push_back(i);
  }
  for (const size_t column : columns) feature_names_.push_back(names[column]);
  for (size_t i = first_row; has_id && i < rows.size(); ++i) ids_.push_back(rows[i][id].text);

  std::vector<at::Tensor> tensors = {feature_tensor(rows, first_row, columns, names, options.path, dtype)};
  if (has_target && options.target_is_class) {
    classes_ = options.classes.empty() ? sorted_classes(rows, first_row, target) : options.classes;
    tensors.push_back(class_tensor(rows, first_row, target, classes_, options.path));
  } else if (has_target) {
    tensors.push_back(feature_tensor(rows, first_row, {target}, names, options.path, dtype).squeeze(1));
  }
  const std::vector<std::string> fields =
      has_target ? std::vector<std::string>{"features", "targets"} : std::vector<std::string>{"features"};
  data_ = std::make_shared<TensorDataset>(std::move(tensors), fields);
}

CsvData::CsvData(CsvDataOptions options) : options_(checked(std::move(options), "CsvDataOptions")) {
  check_batching(options_.batching, "CsvDataOptions.batching", options_.drop_last);
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
          .id = options_.id,
          .target_is_class = options_.target_is_class};
}

std::shared_ptr<CsvDataset> CsvData::all_rows() {
  if (all_ == nullptr || all_->dtype() != float_dtype()) {
    CsvDatasetOptions options = file_options(options_.path);
    if (!options.features.empty()) options.id.clear();  // only needed to leave it out of the features
    all_ = std::make_shared<CsvDataset>(std::move(options), float_dtype());
  }
  classes_ = all_->classes();
  return all_;
}

at::Tensor CsvData::labels() const {
  return all_->get_range(0, all_->size())[1];  // a view
}

// Rows to predict need no target; if any target is not a number or a known class, all targets are dropped.
std::shared_ptr<CsvDataset> CsvData::new_rows(Stage stage) {
  CsvDatasetOptions options = file_options(options_.test_path);
  if (options_.target_is_class && !options_.target.empty()) options.classes = all_rows()->classes();  // as in training
  const auto names = [&](const std::string& path) {
    return detail::read_column_names(path, options_.header, options.delimiter[0]);
  };
  const std::vector<std::string> own = names(options_.test_path);
  const detail::CsvColumns columns =
      detail::columns_of_new_file({options.features, options.target, options.id}, options_.header, names(options_.path),
                                  own, stage == Stage::predict, options_.test_path);
  options.features = columns.features;
  options.target = columns.target;
  options.id = columns.id;
  try {
    return std::make_shared<CsvDataset>(options, float_dtype());
  } catch (const DataError&) {
    if (stage != Stage::predict || options.target.empty()) throw;
    if (options.features.empty()) options.features = detail::other_columns(own, columns);
    if (options.features.empty()) throw;
    options.target.clear();
    return std::make_shared<CsvDataset>(options, float_dtype());
  }
}

void CsvData::setup(Stage stage) {
  if (stage == Stage::fit || stage == Stage::validate) {
    const int64_t all = all_rows()->size();
    const auto val = static_cast<int64_t>(std::floor(static_cast<double>(all) * options_.val_fraction));
    const Split split = random_split(all, val, static_cast<uint64_t>(options_.split_seed),
                                     options_.stratified_split ? labels() : at::Tensor(), !options_.shuffle);
    train_rows_ = split.train;
    val_rows_ = split.held_out;
    return;
  }
  std::shared_ptr<CsvDataset>& rows = stage == Stage::test ? test_ : predict_;
  if (options_.test_path.empty() || (rows != nullptr && rows->dtype() == float_dtype())) return;
  rows = new_rows(stage);
}

std::shared_ptr<Loader> CsvData::train_dataloader() {
  if (!train_rows_.defined()) throw DataError("CsvData: call setup(Stage::fit) before train_dataloader().");
  return batched_loader({all_, train_rows_, options_.target_is_class ? labels() : at::Tensor()},
                        {.batch_size = options_.batch_size,
                         .shuffle = options_.shuffle,
                         .drop_last = options_.drop_last,
                         .num_workers = options_.num_workers},
                        options_.batching);
}

Loaders CsvData::in_order(const std::shared_ptr<CsvDataset>& rows, const at::Tensor& part, const char* hook) const {
  if (rows == nullptr) throw DataError(std::string("CsvData: call setup() of the stage before ") + hook + "().");
  return std::make_shared<DataLoader>(
      rows, DataLoaderOptions{.batch_size = options_.batch_size, .num_workers = options_.num_workers},
      part.defined() ? std::make_shared<SubsetSampler>(part) : nullptr);
}

Loaders CsvData::val_dataloader() {
  if (val_rows_.defined() && val_rows_.size(0) == 0) return {};
  return in_order(val_rows_.defined() ? all_ : nullptr, val_rows_, "val_dataloader");
}

Loaders CsvData::test_dataloader() {
  if (options_.test_path.empty()) return {};
  return in_order(test_, {}, "test_dataloader");
}

Loaders CsvData::predict_dataloader() {
  if (options_.test_path.empty()) return {};
  return in_order(predict_ != nullptr ? predict_ : test_, {}, "predict_dataloader");
}

}  // namespace levin
