#include "levin/data/sets/csv.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/data/batch_memory.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/sampler.h"
#include "levin/data/loading/skipped_sample.h"
#include "levin/data/loading/stratified.h"
#include "levin/data/sets/csv_columns.h"

namespace levin {

namespace detail {

// A file and the columns that are read.
struct CsvRows {
  CsvRows(const CsvDatasetOptions& options, at::ScalarType type)
      : file(options.path, options.delimiter[0], options.header),
        dtype(type),
        target_is_class(options.target_is_class) {
    const std::vector<std::string>& names = file.names();
    if (names.empty()) throw DataError(options.path + ": it holds no rows of data.");
    const auto find = [&](const std::string& wanted) { return find_column(names, wanted, options.path); };
    if (!options.target.empty()) target = find(options.target);
    if (!options.id.empty()) id = find(options.id);
    for (const auto& name : options.features) columns.push_back(find(name));
    for (size_t i = 0; options.features.empty() && i < names.size(); ++i) {
      if (target != i && id != i) columns.push_back(i);
    }
  }

  [[nodiscard]] bool has_classes() const { return target && target_is_class; }

  [[nodiscard]] double number_in(const CsvFile::Row& row, size_t column) const {
    const CsvScanner::Field& field = row[column];
    double value = 0;
    if (field.is_quoted ? parse_csv_number(field.text(), value) : parse_csv_number(field.raw, value)) return value;
    file.fail(field,
              "expected a number in column " + quoted(file.names()[column]) + ", saw " + quoted(field.text()) + ".");
  }

  // The number of the row's class. Throws DataError if it is unknown.
  [[nodiscard]] int64_t class_in(const CsvFile::Row& row) const {
    const std::string text = row[*target].text();
    const int64_t number = class_numbers->find(text);
    if (number < 0) file.fail(row[*target], class_numbers->unknown_text(text));
    return number;
  }

  void use_classes(std::vector<std::string> names) {
    classes = std::move(names);
    class_numbers.emplace(classes);
  }

  // Writes the numbers of a row one after another, and advances `to`.
  template <class Number>
  void put_numbers(const CsvFile::Row& row, Number*& to) const {
    for (const size_t column : columns) *to++ = static_cast<Number>(number_in(row, column));
  }

  CsvFile file;
  at::ScalarType dtype;
  bool target_is_class;
  std::vector<size_t> columns = {};  // of the features
  std::optional<size_t> target = std::nullopt, id = std::nullopt;
  std::vector<std::string> classes = {};
  std::optional<ClassNumbers> class_numbers = std::nullopt;
};

}  // namespace detail

namespace {

using detail::CsvRows;
using Row = CsvFile::Row;

const BatchNames& batch_names(bool has_target) {
  static const BatchNames with{"features", "targets"}, without{"features"};
  return has_target ? with : without;
}

// Tensors of a batch of rows that are filled one row after another.
template <class Number>
class RowFiller {
 public:
  RowFiller(const CsvRows& rows, int64_t count) : rows_(rows) {
    const auto numbers = at::TensorOptions().dtype(rows.dtype);
    batch_.tensors.push_back(empty_batch({count, std::ssize(rows.columns)}, numbers));
    to_ = batch_.tensors[0].mutable_data_ptr<Number>();
    if (!rows.target) return;
    batch_.tensors.push_back(empty_batch({count}, rows.has_classes() ? numbers.dtype(at::kLong) : numbers));
    if (rows.has_classes()) {
      label_ = batch_.tensors[1].mutable_data_ptr<int64_t>();
    } else {
      target_ = batch_.tensors[1].mutable_data_ptr<Number>();
    }
  }

  void add(const Row& row) {
    rows_.put_numbers(row, to_);
    if (label_ != nullptr) *label_++ = rows_.class_in(row);
    if (target_ != nullptr) *target_++ = static_cast<Number>(rows_.number_in(row, *rows_.target));
  }

  [[nodiscard]] Batch finish() {
    batch_.set_structure(batch_names(rows_.target.has_value()).structure());
    return std::move(batch_);
  }

 private:
  const CsvRows& rows_;
  Batch batch_ = {};
  Number* to_;
  Number* target_ = nullptr;
  int64_t* label_ = nullptr;
};

template <class Number>
Batch parsed_rows(const CsvRows& rows, const int64_t* indices, int64_t count) {
  RowFiller<Number> filler(rows, count);
  const CsvFile::Visit add = [&filler](const Row& row) { filler.add(row); };
  for (int64_t i = 0, end = 0; i < count; i = end) {
    end = i + 1;
    while (end < count && indices[end] == indices[end - 1] + 1) ++end;
    rows.file.read(indices[i], end - i, add);
  }
  return filler.finish();
}

Batch parsed_rows(const CsvRows& rows, const at::Tensor& indices) {
  const at::Tensor at = indices.contiguous();
  const auto* first = at.const_data_ptr<int64_t>();
  return rows.dtype == at::kDouble ? parsed_rows<double>(rows, first, at.numel())
                                   : parsed_rows<float>(rows, first, at.numel());
}

// The numbers of all rows, of which nobody knows how many there are before the file has been read.
template <class Number>
class NumberColumns {
 public:
  explicit NumberColumns(int64_t columns) : columns_(columns) {}
  Number* new_row() {
    values_.resize(values_.size() + static_cast<size_t>(columns_));
    return values_.data() + values_.size() - columns_;
  }
  [[nodiscard]] at::Tensor tensor(int64_t rows) const {
    at::Tensor made = at::empty({rows, columns_}, at::TensorOptions().dtype(c10::CppTypeToScalarType<Number>::value));
    if (made.numel() > 0) std::memcpy(made.mutable_data_ptr(), values_.data(), made.nbytes());
    return made;
  }

 private:
  int64_t columns_;
  std::vector<Number> values_ = {};
};

// Numbers of classes in the order of their appearance.
class FoundClasses {
 public:
  int64_t add(std::string text) {
    const auto [found, is_new] = numbers_.try_emplace(std::move(text), std::ssize(numbers_));
    return found->second;
  }
  [[nodiscard]] std::vector<std::string> sorted() const {
    std::vector<std::string> names;
    for (const auto& [name, number] : numbers_) names.push_back(name);
    return detail::sorted_classes(std::move(names));
  }
  /// Replaces these numbers by indices in `classes`.
  void renumber(std::vector<int64_t>& labels, const std::vector<std::string>& classes) const {
    std::vector<int64_t> index(classes.size());
    for (size_t i = 0; i < classes.size(); ++i)
      index[static_cast<size_t>(numbers_.at(classes[i]))] = static_cast<int64_t>(i);
    for (int64_t& label : labels) {
      if (label >= 0) label = index[static_cast<size_t>(label)];
    }
  }

 private:
  std::unordered_map<std::string, int64_t> numbers_ = {};
};

at::Tensor int64_tensor(const std::vector<int64_t>& values) {
  return at::tensor(values, at::TensorOptions().dtype(at::kLong));
}

// Finds the rows of the file, checks every value that is read later, and returns the tensors of all rows, or with
// `keeps` false none. Rows that cannot be read are zeros, with the class -1.
template <class Number>
std::vector<at::Tensor> scan(CsvRows& rows, std::vector<std::string> classes, bool keeps, OnRowError on_error,
                             std::vector<std::string>& ids) {
  const bool finds_classes = rows.has_classes() && classes.empty();
  if (rows.has_classes() && !finds_classes) rows.use_classes(std::move(classes));
  NumberColumns<Number> features(std::ssize(rows.columns)), targets(1);
  std::vector<Number> checked(rows.columns.size() + 1);
  std::vector<int64_t> labels;
  FoundClasses found;
  rows.file.index(
      [&](const Row& row) {
        int64_t label = -1;
        Number target = 0;
        std::fill(checked.begin(), checked.end(), Number(0));
        if (!row.empty()) {  // first all that may throw
          Number* to = checked.data();
          rows.put_numbers(row, to);
          if (rows.target && !rows.has_classes()) target = static_cast<Number>(rows.number_in(row, *rows.target));
          if (rows.has_classes()) label = finds_classes ? found.add(row[*rows.target].text()) : rows.class_in(row);
        }
        if (!keeps) return;
        std::copy_n(checked.begin(), rows.columns.size(), features.new_row());
        if (rows.has_classes()) {
          labels.push_back(label);
        } else if (rows.target) {
          *targets.new_row() = target;
        }
        if (rows.id) ids.push_back(row.empty() ? "" : row[*rows.id].text());
      },
      on_error);
  if (finds_classes) {
    rows.use_classes(found.sorted());
    found.renumber(labels, rows.classes);
  }
  if (!keeps) return {};
  std::vector<at::Tensor> tensors = {features.tensor(rows.file.rows())};
  if (rows.has_classes()) {
    tensors.push_back(int64_tensor(labels));
  } else if (rows.target) {
    tensors.push_back(targets.tensor(rows.file.rows()).squeeze(1));
  }
  return tensors;
}

}  // namespace

CsvDataset::CsvDataset(CsvDatasetOptions given, at::ScalarType dtype) {
  const CsvDatasetOptions options = checked(std::move(given), "CsvDatasetOptions");
  if (dtype != at::kFloat && dtype != at::kDouble) {
    throw ConfigError(std::string("CsvDataset: numbers are read as float32 or float64, not as ") +
                      c10::toString(dtype) + ". Convert the batches instead.");
  }
  const auto rows = std::make_shared<CsvRows>(options, dtype);
  for (const size_t column : rows->columns) feature_names_.push_back(rows->file.names()[column]);
  const bool keeps = rows->file.bytes() <= static_cast<uint64_t>(options.max_in_memory.bytes);
  std::vector<at::Tensor> tensors = dtype == at::kDouble
                                        ? scan<double>(*rows, options.classes, keeps, options.on_error, ids_)
                                        : scan<float>(*rows, options.classes, keeps, options.on_error, ids_);
  if (keeps) {
    const auto names =
        rows->target ? std::vector<std::string>{"features", "targets"} : std::vector<std::string>{"features"};
    data_ = std::make_shared<TensorDataset>(std::move(tensors), names);
    rows->file.close();
  }
  rows_ = rows;
}

int64_t CsvDataset::size() const {
  return rows_->file.rows();
}

bool CsvDataset::has_get_batch() const {
  return !lists_damaged_ || rows_->file.damaged().empty();
}

at::Tensor CsvDataset::readable_rows() const {
  std::vector<int64_t> rows;
  const auto& damaged = rows_->file.damaged();
  rows.reserve(static_cast<size_t>(size()));
  for (int64_t row = 0; row < size(); ++row) {
    if (!damaged.contains(row)) rows.push_back(row);
  }
  return int64_tensor(rows);
}

Batch CsvDataset::get(int64_t index) const {
  const auto& damaged = rows_->file.damaged();
  if (const auto found = damaged.find(index); found != damaged.end()) return skipped_sample(found->second.reason);
  if (data_ != nullptr) return data_->get(index);
  Batch sample = get_range(index, 1);
  for (at::Tensor& tensor : sample.tensors) tensor = tensor.select(0, 0);
  return sample;
}

Batch CsvDataset::get_batch(const at::Tensor& indices) const {
  return data_ != nullptr ? data_->get_batch(indices) : parsed_rows(*rows_, indices);
}

Batch CsvDataset::get_range(int64_t first, int64_t count) const {
  if (data_ != nullptr) return data_->get_range(first, count);
  return parsed_rows(*rows_, at::arange(first, first + count, at::TensorOptions().dtype(at::kLong)));
}

std::string CsvDataset::sample_id(int64_t index) const {
  if (!rows_->id) return std::to_string(index);
  if (rows_->file.damaged().contains(index)) return std::to_string(index);
  if (data_ != nullptr) return ids_.at(static_cast<size_t>(index));
  std::string id;
  rows_->file.read(index, 1,
                   [&](const Row& row) { id = row.empty() ? std::to_string(index) : row[*rows_->id].text(); });
  return id;
}

at::ScalarType CsvDataset::dtype() const {
  return rows_->dtype;
}

const std::vector<std::string>& CsvDataset::classes() const {
  return rows_->classes;
}

at::Tensor CsvDataset::labels() const {
  if (data_ != nullptr) return data_->tensors()[1];
  std::vector<int64_t> labels;
  rows_->file.read(0, size(), [&](const Row& row) { labels.push_back(row.empty() ? -1 : rows_->class_in(row)); });
  return int64_tensor(labels);
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
          .target_is_class = options_.target_is_class,
          .max_in_memory = options_.max_in_memory,
          .on_error = options_.on_error};
}

std::shared_ptr<CsvDataset> CsvData::all_rows() {
  if (all_ == nullptr || all_->dtype() != float_dtype()) {
    CsvDatasetOptions options = file_options(options_.path);
    if (!options.features.empty()) options.id.clear();  // only needed to leave it out of the features
    all_ = std::make_shared<CsvDataset>(std::move(options), float_dtype());
    all_->asks_for_readable_rows();
  }
  classes_ = all_->classes();
  columns_ = detail::read_column_names(options_.path, options_.header, options_.delimiter[0]);
  return all_;
}

// Without a checkpoint that has them, the classes of the training file, if it is there.
const std::vector<std::string>& CsvData::known_classes() const {
  std::error_code ignored;
  if (classes_.empty() && has_classes() && std::filesystem::exists(options_.path, ignored)) {
    classes_ = CsvDataset(file_options(options_.path), float_dtype()).classes();
  }
  return classes_;
}

std::vector<std::string> CsvData::label_names() const {
  return predicts_ ? known_classes() : classes_;
}

State CsvData::state_dict() const {
  State state;
  if (!classes_.empty()) state.set("classes", classes_);
  if (!columns_.empty()) state.set("columns", columns_);
  return state;
}

// Labels that were read have the numbers of their own file's classes.
void CsvData::load_state_dict(const State& saved) {
  if (!predicts_) return;
  if (saved.has("classes")) classes_ = saved.get<std::vector<std::string>>("classes");
  if (saved.has("columns")) columns_ = saved.get<std::vector<std::string>>("columns");
  predict_ = nullptr;
}

// For what is drawn by class; undefined otherwise.
at::Tensor CsvData::labels() const {
  const bool by_class =
      options_.stratified_split || options_.batching.stratified || options_.batching.weights == SampleWeights::balanced;
  return by_class ? all_->labels() : at::Tensor();
}

// Rows to predict need no target; if any target is not a number or a known class, all targets are dropped.
std::shared_ptr<CsvDataset> CsvData::new_rows(Stage stage) {
  CsvDatasetOptions options = file_options(options_.test_path);
  const bool predicts = stage == Stage::predict;
  if (has_classes()) options.classes = predicts ? known_classes() : all_rows()->classes();  // as in training
  const auto names = [&](const std::string& path) {
    return detail::read_column_names(path, options_.header, options.delimiter[0]);
  };
  const std::vector<std::string> own = names(options_.test_path);
  const detail::CsvColumns columns = detail::columns_of_new_file(
      {options.features, options.target, options.id}, options_.header,
      columns_.empty() ? names(options_.path) : columns_, own, predicts, options_.test_path);
  options.features = columns.features;
  options.target = columns.target;
  options.id = columns.id;
  const auto drop_target = [&] {
    if (options.features.empty()) options.features = detail::other_columns(own, columns);
    options.target.clear();
  };
  if (has_classes() && options.classes.empty()) {
    detail::warn_of_unknown_classes("CsvData", options_.path);
    drop_target();
  }
  const bool skips = options_.on_error == OnRowError::skip;  // a row is not skipped because of its target
  if (predicts && skips && !options.target.empty()) drop_target();
  try {
    return std::make_shared<CsvDataset>(options, float_dtype());
  } catch (const DataError&) {
    if (!predicts || options.target.empty()) throw;
    drop_target();
    if (options.features.empty()) throw;
    return std::make_shared<CsvDataset>(options, float_dtype());
  }
}

void CsvData::setup(Stage stage) {
  predicts_ = stage == Stage::predict;
  if (stage == Stage::fit || stage == Stage::validate) {
    const at::Tensor rows = all_rows()->readable_rows();
    const int64_t all = rows.numel();
    const auto val = static_cast<int64_t>(std::floor(static_cast<double>(all) * options_.val_fraction));
    const at::Tensor classes = options_.stratified_split ? labels().index_select(0, rows) : at::Tensor();
    const Split split = random_split(all, val, static_cast<uint64_t>(options_.split_seed), classes, !options_.shuffle);
    train_rows_ = rows.index_select(0, split.train);
    val_rows_ = rows.index_select(0, split.held_out);
    return;
  }
  if (predicts_) {
    if (predict_ != nullptr && predict_->dtype() != float_dtype()) predict_ = nullptr;
    return;
  }
  if (options_.test_path.empty() || (test_ != nullptr && test_->dtype() == float_dtype())) return;
  test_ = new_rows(stage);
  test_->asks_for_readable_rows();
}

std::shared_ptr<Loader> CsvData::train_dataloader() {
  if (!train_rows_.defined()) throw DataError("CsvData: call setup(Stage::fit) before train_dataloader().");
  return batched_loader({all_, train_rows_, labels()},
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
  return in_order(test_,
                  test_ != nullptr && options_.on_error == OnRowError::skip ? test_->readable_rows() : at::Tensor(),
                  "test_dataloader");
}

Loaders CsvData::predict_dataloader() {
  if (options_.test_path.empty()) return {};
  if (predicts_ && predict_ == nullptr) predict_ = new_rows(Stage::predict);
  return in_order(predict_ != nullptr ? predict_ : test_, {}, "predict_dataloader");
}

}  // namespace levin
