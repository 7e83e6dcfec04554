#include "levin/data/columns/table_module.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/log.h"
#include "levin/core/storage/open_store.h"
#include "levin/data/columns/group_sampler.h"
#include "levin/data/columns/remote_columns.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/stratified.h"
#include "levin/data/sets/csv_columns.h"

namespace levin {

namespace {

std::vector<std::string> names_of(const ColumnFile& file) {
  std::vector<std::string> names;
  for (const ColumnInfo& column : file.columns()) names.push_back(column.name);
  return names;
}

// Throws DataError if the column holds neither numbers nor strings.
size_t checked_column(const ColumnFile& file, size_t column, const std::string& path) {
  const ColumnInfo& info = file.columns()[column];
  if (info.is_supported) return column;
  throw DataError(path + ": column \"" + info.name + "\" has the type " + info.type_name +
                  ", expected numbers or strings. Name the features without it.");
}

// A column as a feature, a target or an id.
size_t usable_column(const ColumnFile& file, const std::string& wanted, const std::string& path) {
  return checked_column(file, detail::find_column(names_of(file), wanted, path), path);
}

at::Tensor all_rows(int64_t count) {
  return at::arange(count, at::TensorOptions().dtype(at::kLong));
}

}  // namespace

TableModule::TableModule(std::string name, detail::TableModuleOptions options, bool has_header)
    : name_(std::move(name)), options_(std::move(options)), has_header_(has_header) {
  const bool by_class = options_.stratified_split;
  if (by_class && (options_.target.empty() || options_.target_is_class == false)) {
    throw ConfigError(name_ + "Options.stratified_split: it needs classes. Set target to their column.");
  }
}

std::shared_ptr<const ColumnFile> TableModule::open_table(const std::string& path) const {
  if (!is_remote(path)) return open(path);
  return open_remote_columns(path, [this](const std::string& copy) { return open(copy); });
}

TableSource TableModule::training_source() const {
  TableSource source{.file = open_table(options_.path), .path = shown_table_path(options_.path)};
  if (source.rows() == 0) throw DataError(source.path + ": it holds no rows of data.");
  const auto& columns = source.file->columns();
  const auto find = [&](const std::string& wanted) { return usable_column(*source.file, wanted, source.path); };
  if (!options_.id.empty()) source.id = find(options_.id);
  if (!options_.target.empty()) {
    const size_t target = find(options_.target);
    const bool is_class = options_.target_is_class.value_or(columns[target].type == ColumnType::category);
    source.target = WantedColumn{target, is_class ? ColumnType::category : ColumnType::number};
  }
  const auto add = [&](size_t column) { source.features.push_back({column, columns[column].type}); };
  for (const std::string& name : options_.features) add(find(name));
  for (size_t i = 0; options_.features.empty() && i < columns.size(); ++i) {
    const bool is_other = source.id == i || (source.target && source.target->column == i);
    if (!is_other) add(checked_column(*source.file, i, source.path));
  }
  if (source.features.empty()) throw DataError(source.path + ": no column is left for the features.");
  const auto is_named_category = [&](size_t column) {
    return std::any_of(options_.categories.begin(), options_.categories.end(),
                       [&](const std::string& name) { return find(name) == column; });
  };
  for (const WantedColumn& feature : source.features) {
    const ColumnInfo& info = columns[feature.column];
    if (info.doubt.empty() || is_named_category(feature.column)) continue;
    log::data.warn("{}: column \"{}\" is read as categories: {}", source.path, info.name, info.doubt);
  }
  for (const std::string& name : options_.categories) {
    const size_t column = find(name);
    const auto found = std::find_if(source.features.begin(), source.features.end(),
                                    [column](const WantedColumn& feature) { return feature.column == column; });
    if (found == source.features.end()) {
      throw DataError(source.path + ": column \"" + name + "\" of `categories` is not one of the features.");
    }
    found->type = ColumnType::category;
  }
  return source;
}

at::Tensor TableModule::usable_rows(const TableSource& source) const {
  if (options_.on_error == OnRowError::raise) return all_rows(source.rows());
  at::Tensor rows = find_usable_rows(source);
  if (rows.numel() == 0) throw DataError(source.path + ": none of its rows has a target. Check the option target.");
  return rows;
}

void TableModule::read_training_file() {
  if (train_.file != nullptr) return;
  TableSource source = training_source();
  at::Tensor labels;
  if (source.target && source.target->type == ColumnType::category) {
    TableClasses classes = read_classes(source, options_.on_error == OnRowError::skip);
    classes_ = std::move(classes.names);
    if (options_.stratified_split) labels = std::move(classes.labels);
  } else if (options_.stratified_split) {
    throw ConfigError(name_ + "Options.stratified_split: it needs classes, and column \"" + options_.target +
                      "\" holds numbers. Set target_is_class: true.");
  }
  const at::Tensor rows = usable_rows(source);
  if (labels.defined()) labels = labels.index_select(0, rows);
  const auto held_out = static_cast<int64_t>(std::floor(static_cast<double>(rows.numel()) * options_.val_fraction));
  // Both parts in the order of the file: the sampler shuffles whole groups.
  const Split split = random_split(rows.numel(), held_out, static_cast<uint64_t>(options_.split_seed), labels, true);
  train_rows_ = rows.index_select(0, split.train);
  val_rows_ = rows.index_select(0, split.held_out);
  train_ = std::move(source);
}

const TableSummary& TableModule::summary() {
  if (summary_ == nullptr) {
    read_training_file();
    summary_ = std::make_shared<const TableSummary>(summarize(train_, train_rows_, classes_, options_.max_categories));
  }
  return *summary_;
}

TableSource TableModule::new_source(const std::string& path, bool reads_target) {
  const TableSummary& known = summary();
  TableSource source{.file = test_, .path = path};
  const std::vector<std::string> own = names_of(*test_);
  detail::CsvColumns wanted{{}, known.target.name, options_.id};
  for (const TableColumn& feature : known.features) wanted.features.push_back(feature.name);
  if (!has_header_) {  // columns have numbers, which differ if the file has no target
    const auto names = detail::columns_of_new_file(wanted, false, known.file_columns, own, !reads_target, path);
    wanted.features = names.features.empty() ? detail::other_columns(own, names) : names.features;
    wanted.id = names.id;
  }
  for (size_t k = 0; k < wanted.features.size(); ++k) {
    source.features.push_back({usable_column(*test_, wanted.features[k], path), known.features.at(k).type});
  }
  if (!wanted.id.empty()) source.id = usable_column(*test_, wanted.id, path);
  if (reads_target && !known.target.name.empty()) {
    source.target = WantedColumn{usable_column(*test_, known.target.name, path), known.target.type};
  }
  return source;
}

void TableModule::setup(Stage stage) {
  if (stage == Stage::fit || stage == Stage::validate) return read_training_file();
  if (test_ == nullptr && !options_.test_path.empty()) test_ = open_table(options_.test_path);
}

void TableModule::teardown(Stage /*stage*/) {
  train_ = {};
  test_ = nullptr;
  train_rows_ = val_rows_ = at::Tensor();
}

std::shared_ptr<Loader> TableModule::loader(const TableSource& source, const at::Tensor& rows, bool is_training,
                                            bool lists_damaged) {
  (void)summary();
  const auto& groups = source.file->group_rows();
  const int64_t largest = groups.empty() ? 0 : *std::max_element(groups.begin(), groups.end());
  // While workers prefetch the first batches of a window, others still read the last ones of the window before.
  const int64_t rows_in_memory =
      is_training && options_.shuffle ? 2 * (options_.shuffle_window + largest) : 2 * largest;
  auto dataset = std::make_shared<TableDataset>(source, summary_, float_dtype(), rows_in_memory, lists_damaged);
  return std::make_shared<DataLoader>(
      std::move(dataset),
      DataLoaderOptions{.batch_size = options_.batch_size,
                        .drop_last = is_training && options_.drop_last,
                        .num_workers = options_.num_workers},
      std::make_shared<GroupSampler>(groups, rows, options_.shuffle_window, is_training && options_.shuffle));
}

std::shared_ptr<Loader> TableModule::train_dataloader() {
  if (train_.file == nullptr) throw DataError(name_ + ": call setup(Stage::fit) before train_dataloader().");
  return loader(train_, train_rows_, true);
}

Loaders TableModule::val_dataloader() {
  if (train_.file == nullptr) throw DataError(name_ + ": call setup(Stage::fit) before val_dataloader().");
  if (val_rows_.numel() == 0) return {};
  TableSource source = train_;
  source.id = std::nullopt;
  return loader(source, val_rows_, false);
}

Loaders TableModule::test_dataloader() {
  if (options_.test_path.empty()) return {};
  if (test_ == nullptr) throw DataError(name_ + ": call setup(Stage::test) before test_dataloader().");
  const TableSource source = new_source(shown_table_path(options_.test_path), true);
  return loader(source, usable_rows(source), false);
}

Loaders TableModule::predict_dataloader() {
  if (options_.test_path.empty()) return {};
  if (test_ == nullptr) throw DataError(name_ + ": call setup(Stage::predict) before predict_dataloader().");
  const TableSource source = new_source(shown_table_path(options_.test_path), false);
  return loader(source, all_rows(source.rows()), false, /*lists_damaged=*/true);
}

std::vector<std::string> TableModule::label_names() const {
  if (summary_ == nullptr) return classes_;
  return summary_->target.type == ColumnType::category ? summary_->target.values : std::vector<std::string>();
}

State TableModule::state_dict() const {
  return summary_ == nullptr ? State() : summary_->state_dict();
}

void TableModule::load_state_dict(const State& saved) {
  summary_ = std::make_shared<const TableSummary>(TableSummary::from(saved));
}

}  // namespace levin
