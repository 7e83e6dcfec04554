#include "levin/data/columns/table_dataset.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>
#include <list>
#include <map>
#include <mutex>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/log.h"
#include "levin/data/batch_memory.h"
#include "levin/data/loading/skipped_sample.h"
#include "levin/data/sets/csv_columns.h"

namespace levin {

namespace {

std::string in_quotes(const std::string& text) {
  return "\"" + cut_text(text) + "\"";
}

const std::string& column_name(const TableSource& source, const WantedColumn& column) {
  return source.file->columns()[column.column].name;
}

// The rows of a group that are in `rows`, counted from the group's start.
std::vector<int64_t> rows_within(const at::Tensor& rows, int64_t start, int64_t count) {
  const auto* first = rows.const_data_ptr<int64_t>();
  const auto* last = first + rows.numel();
  const auto* from = std::lower_bound(first, last, start);
  const auto* to = std::lower_bound(from, last, start + count);
  std::vector<int64_t> within(from, to);
  for (int64_t& row : within) row -= start;
  return within;
}

}  // namespace

int64_t TableSource::rows() const {
  const auto& rows = file->group_rows();
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

std::vector<ColumnValues> TableSource::read(size_t group, const std::vector<WantedColumn>& wanted) const {
  std::vector<ColumnValues> values;
  if (wanted.empty()) return values;
  const std::string problem = file->read(group, wanted, values);
  if (!problem.empty()) throw DataError(path + ": " + cut_text(problem, 400) + ". Is the file damaged?");
  return values;
}

void TableSource::fail(size_t group, int64_t row, const std::string& what) const {
  throw DataError(path + ": " + file->position_text(group, row) + ": " + what);
}

TableClasses read_classes(const TableSource& source, bool may_lack) {
  TableClasses classes;
  classes.labels = at::empty({source.rows()}, at::TensorOptions().dtype(at::kLong));
  auto* label = classes.labels.mutable_data_ptr<int64_t>();
  std::unordered_map<std::string, int64_t> numbers;  // in the order of their appearance
  const auto& groups = source.file->group_rows();
  for (size_t group = 0; group < groups.size(); ++group) {
    const ColumnValues column = std::move(source.read(group, {*source.target})[0]);
    std::vector<int64_t> number_of(column.values.size(), -1);
    for (size_t row = 0; row < column.codes.size(); ++row) {
      const int32_t code = column.codes[row];
      if (code < 0 && may_lack) {
        *label++ = -1;
        continue;
      }
      if (code < 0) {
        source.fail(group, static_cast<int64_t>(row),
                    "no class in column " + in_quotes(column_name(source, *source.target)) +
                        ". Leave the row out, or give it a class.");
      }
      int64_t& number = number_of[static_cast<size_t>(code)];
      if (number < 0) {
        const std::string& text = column.values[static_cast<size_t>(code)];
        const auto [found, is_new] = numbers.try_emplace(text, std::ssize(classes.names));
        if (is_new) classes.names.push_back(text);
        number = found->second;
      }
      *label++ = number;
    }
  }
  std::vector<std::string> sorted = detail::sorted_classes(classes.names);
  std::vector<int64_t> place(sorted.size());
  for (size_t i = 0; i < sorted.size(); ++i) place[static_cast<size_t>(numbers[sorted[i]])] = static_cast<int64_t>(i);
  label = classes.labels.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < classes.labels.numel(); ++i) {
    if (label[i] >= 0) label[i] = place[static_cast<size_t>(label[i])];
  }
  classes.names = std::move(sorted);
  return classes;
}

at::Tensor find_usable_rows(const TableSource& source) {
  constexpr int64_t kMaxWarnings = 10;
  const std::map<int64_t, std::string> damaged = source.file->damaged();
  const auto& groups = source.file->group_rows();
  std::vector<int64_t> usable;
  int64_t number = 0, without_target = 0;
  for (size_t group = 0; group < groups.size(); ++group) {
    const std::vector<ColumnValues> values =
        source.target ? source.read(group, {*source.target}) : std::vector<ColumnValues>();
    for (int64_t row = 0; row < groups[group]; ++row, ++number) {
      if (damaged.contains(number)) continue;
      const auto k = static_cast<size_t>(row);
      const bool has_target =
          !source.target ||
          (source.target->type == ColumnType::category ? values[0].codes[k] >= 0 : std::isfinite(values[0].numbers[k]));
      if (has_target) {
        usable.push_back(number);
      } else if (++without_target <= kMaxWarnings) {
        log::data.warn("left out: {}: {}: no value in column {}, the target", source.path,
                       source.file->position_text(group, row), in_quotes(column_name(source, *source.target)));
      }
    }
  }
  if (without_target > kMaxWarnings) log::data.warn("{}: {} rows have no target.", source.path, without_target);
  at::Tensor rows = at::empty({std::ssize(usable)}, at::TensorOptions().dtype(at::kLong));
  std::copy(usable.begin(), usable.end(), rows.mutable_data_ptr<int64_t>());
  return rows;
}

namespace {

// What has been seen of one column.
struct Seen {
  MomentSums sums = {};
  std::unordered_set<std::string> values = {};
  bool has_missing = false;
};

void see_numbers(Seen& seen, const TableSource& source, const WantedColumn& column, size_t group,
                 const std::vector<double>& numbers, const std::vector<int64_t>& rows) {
  std::vector<double> chosen;
  chosen.reserve(rows.size());
  for (const int64_t row : rows) {
    const double number = numbers[static_cast<size_t>(row)];
    if (std::isinf(number)) {
      source.fail(group, row,
                  "an infinite number in column " + in_quotes(column_name(source, column)) +
                      ". Replace it, or leave it empty for a missing value.");
    }
    seen.has_missing |= std::isnan(number);
    chosen.push_back(number);
  }
  seen.sums.add(chosen);
}

void see_categories(Seen& seen, const ColumnValues& column, const std::vector<int64_t>& rows) {
  std::vector<char> is_used(column.values.size(), 0);
  for (const int64_t row : rows) {
    const int32_t code = column.codes[static_cast<size_t>(row)];
    code < 0 ? seen.has_missing = true : is_used[static_cast<size_t>(code)] = 1;
  }
  for (size_t i = 0; i < is_used.size(); ++i) {
    if (is_used[i] != 0) seen.values.insert(column.values[i]);
  }
}

TableColumn column_of(const std::string& name, ColumnType type, Seen& seen) {
  TableColumn column{.name = name, .type = type, .has_missing = seen.has_missing};
  if (type == ColumnType::number) {
    column.mean = seen.sums.mean();
    column.std = seen.sums.std();
  } else {
    column.values = detail::sorted_classes(std::vector<std::string>(seen.values.begin(), seen.values.end()));
  }
  return column;
}

}  // namespace

TableSummary summarize(const TableSource& source, const at::Tensor& rows, const std::vector<std::string>& classes,
                       int64_t max_categories) {
  std::vector<WantedColumn> wanted = source.features;
  const bool has_numeric_target = source.target && source.target->type == ColumnType::number;
  if (has_numeric_target) wanted.push_back(*source.target);
  std::vector<Seen> seen(wanted.size());
  const auto& groups = source.file->group_rows();
  int64_t start = 0;
  for (size_t group = 0; group < groups.size(); start += groups[group++]) {
    const std::vector<int64_t> chosen = rows_within(rows, start, groups[group]);
    if (chosen.empty()) continue;
    const std::vector<ColumnValues> values = source.read(group, wanted);
    for (size_t k = 0; k < wanted.size(); ++k) {
      if (wanted[k].type == ColumnType::number) {
        see_numbers(seen[k], source, wanted[k], group, values[k].numbers, chosen);
        continue;
      }
      see_categories(seen[k], values[k], chosen);
      if (std::ssize(seen[k].values) <= max_categories) continue;
      throw DataError(source.path + ": column " + in_quotes(column_name(source, wanted[k])) + " has more than " +
                      count_of(max_categories, "category", "categories") +
                      ". Leave it out by naming the features, or raise max_categories.");
    }
  }
  TableSummary summary;
  for (const ColumnInfo& column : source.file->columns()) summary.file_columns.push_back(column.name);
  for (size_t k = 0; k < source.features.size(); ++k) {
    summary.features.push_back(column_of(column_name(source, wanted[k]), wanted[k].type, seen[k]));
  }
  if (!source.target) return summary;
  if (has_numeric_target) {
    summary.target = column_of(column_name(source, *source.target), ColumnType::number, seen.back());
  } else {
    summary.target = {.name = column_name(source, *source.target), .type = ColumnType::category, .values = classes};
  }
  return summary;
}

// A group, decoded.
struct TableDataset::Group {
  at::Tensor numbers = {};     // (rows, columns) of dtype
  at::Tensor categories = {};  // (rows, columns) int32
  at::Tensor targets = {};     // (rows); undefined: there are none
  std::vector<int32_t> ids = {};
  std::vector<std::string> id_texts = {};
};

// The groups that were used last. A group that several workers need is decoded by the first of them.
struct TableDataset::Cache {
  using Future = std::shared_future<std::shared_ptr<const Group>>;
  struct Entry {
    Future group;
    int64_t rows;
    std::list<size_t>::iterator use;
  };

  explicit Cache(int64_t most) : most_rows(most) {}

  // Without the groups that were not used for the longest time; `newest` stays.
  void make_room(size_t newest) {
    while (rows > most_rows && uses.back() != newest) {
      rows -= entries.at(uses.back()).rows;
      entries.erase(uses.back());
      uses.pop_back();
    }
  }

  std::mutex mutex = {};
  std::map<size_t, Entry> entries = {};
  std::list<size_t> uses = {};  // the newest first
  int64_t rows = 0;
  int64_t most_rows;
};

TableDataset::TableDataset(TableSource source, std::shared_ptr<const TableSummary> summary, at::ScalarType dtype,
                           int64_t rows_in_memory, bool lists_damaged)
    : source_(std::move(source)),
      summary_(std::move(summary)),
      dtype_(dtype),
      cache_(std::make_unique<Cache>(rows_in_memory)) {
  if (lists_damaged) damaged_ = source_.file->damaged();
  for (const int64_t rows : source_.file->group_rows()) {
    starts_.push_back(size_);
    size_ += rows;
  }
  std::vector<std::string> names = {"features"};
  if (!summary_->of_type(ColumnType::category).empty()) names.push_back("categories");
  if (source_.target) names.push_back("targets");
  names_ = BatchNames(names).structure();
}

TableDataset::~TableDataset() = default;

size_t TableDataset::find_group(int64_t row) const {
  return static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), row) - starts_.begin()) - 1;
}

namespace {

template <class Number>
void put_column(const std::vector<double>& numbers, at::Tensor& to, int64_t column) {
  const int64_t columns = to.size(1);
  auto* value = to.mutable_data_ptr<Number>() + column;
  for (const double number : numbers) {
    *value = static_cast<Number>(number);
    value += columns;
  }
}

void put_codes(const ColumnValues& values, const TableColumn& column, at::Tensor& to, int64_t position) {
  std::unordered_map<std::string_view, int32_t> codes;
  for (size_t i = 0; i < column.values.size(); ++i) codes.emplace(column.values[i], static_cast<int32_t>(i) + 1);
  const int32_t missing = column.has_missing ? static_cast<int32_t>(column.values.size()) + 1 : 0;
  std::vector<int32_t> code_of(values.values.size(), 0);
  for (size_t i = 0; i < code_of.size(); ++i) {
    const auto found = codes.find(values.values[i]);
    if (found != codes.end()) code_of[i] = found->second;
  }
  const int64_t columns = to.size(1);
  auto* value = to.mutable_data_ptr<int32_t>() + position;
  for (const int32_t code : values.codes) {
    *value = code < 0 ? missing : code_of[static_cast<size_t>(code)];
    value += columns;
  }
}

// -1: missing, -2: unknown; the rows that a pass does not visit may lack a class.
at::Tensor class_numbers(const ColumnValues& values, const std::vector<std::string>& classes) {
  std::unordered_map<std::string_view, int64_t> numbers;
  for (size_t i = 0; i < classes.size(); ++i) numbers.emplace(classes[i], static_cast<int64_t>(i));
  at::Tensor labels = at::empty({std::ssize(values.codes)}, at::TensorOptions().dtype(at::kLong));
  auto* label = labels.mutable_data_ptr<int64_t>();
  for (const int32_t code : values.codes) {
    const auto found = code < 0 ? numbers.end() : numbers.find(values.values[static_cast<size_t>(code)]);
    *label++ = code < 0 ? -1 : found == numbers.end() ? -2 : found->second;
  }
  return labels;
}

}  // namespace

std::shared_ptr<const TableDataset::Group> TableDataset::decode(size_t group) const {
  std::vector<WantedColumn> wanted = source_.features;
  if (source_.target) wanted.push_back(*source_.target);
  if (source_.id) wanted.push_back({*source_.id, ColumnType::category});
  std::vector<ColumnValues> values = source_.read(group, wanted);
  const int64_t rows = source_.file->group_rows()[group];
  auto made = std::make_shared<Group>();
  int64_t numbers = 0, categories = 0;
  for (const WantedColumn& column : source_.features) ++(column.type == ColumnType::number ? numbers : categories);
  made->numbers = at::empty({rows, numbers}, at::TensorOptions().dtype(dtype_));
  made->categories = at::empty({rows, categories}, at::TensorOptions().dtype(at::kInt));
  numbers = categories = 0;
  for (size_t k = 0; k < source_.features.size(); ++k) {
    if (wanted[k].type == ColumnType::category) {
      put_codes(values[k], summary_->features[k], made->categories, categories++);
    } else if (dtype_ == at::kDouble) {
      put_column<double>(values[k].numbers, made->numbers, numbers++);
    } else {
      put_column<float>(values[k].numbers, made->numbers, numbers++);
    }
    values[k] = {};
  }
  const size_t target = source_.features.size();
  if (source_.target && source_.target->type == ColumnType::category) {
    made->targets = class_numbers(values[target], summary_->target.values);
  } else if (source_.target) {
    at::Tensor column = at::empty({rows, 1}, at::TensorOptions().dtype(dtype_));
    dtype_ == at::kDouble ? put_column<double>(values[target].numbers, column, 0)
                          : put_column<float>(values[target].numbers, column, 0);
    made->targets = column.squeeze(1);
  }
  if (source_.id) {
    made->ids = std::move(values.back().codes);
    made->id_texts = std::move(values.back().values);
  }
  return made;
}

std::shared_ptr<const TableDataset::Group> TableDataset::group_of(size_t group) const {
  std::promise<std::shared_ptr<const Group>> promise;
  Cache::Future found;
  {
    const std::lock_guard lock(cache_->mutex);
    if (const auto entry = cache_->entries.find(group); entry != cache_->entries.end()) {
      cache_->uses.splice(cache_->uses.begin(), cache_->uses, entry->second.use);
      found = entry->second.group;
    } else {
      const int64_t rows = source_.file->group_rows()[group];
      cache_->uses.push_front(group);
      cache_->entries.emplace(group, Cache::Entry{promise.get_future().share(), rows, cache_->uses.begin()});
      cache_->rows += rows;
      cache_->make_room(group);
    }
  }
  if (found.valid()) return found.get();
  try {
    auto made = decode(group);
    promise.set_value(made);
    return made;
  } catch (...) {
    promise.set_exception(std::current_exception());
    throw;
  }
}

Batch TableDataset::get(int64_t index) const {
  if (const auto found = damaged_.find(index); found != damaged_.end()) return skipped_sample(found->second);
  at::Tensor one = at::empty({1}, at::TensorOptions().dtype(at::kLong));
  *one.mutable_data_ptr<int64_t>() = index;
  Batch sample = get_batch(one);
  for (at::Tensor& tensor : sample.tensors) tensor = tensor.select(0, 0);
  return sample;
}

namespace {

// Copies rows of a group's array to rows of the batch. `pairs`: row of the group, row of the batch.
void copy_rows(const at::Tensor& from, at::Tensor& to, const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  const size_t bytes = from.numel() == 0 ? 0 : from.nbytes() / static_cast<size_t>(from.size(0));
  const auto* source = static_cast<const std::byte*>(from.const_data_ptr());
  auto* target = static_cast<std::byte*>(to.mutable_data_ptr());
  if (bytes == 0) return;
  for (const auto& [row, place] : pairs) {
    std::memcpy(target + static_cast<size_t>(place) * bytes, source + static_cast<size_t>(row) * bytes, bytes);
  }
}

void widen_rows(const at::Tensor& from, at::Tensor& to, const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  const int64_t columns = from.size(1);
  const auto* source = from.const_data_ptr<int32_t>();
  auto* target = to.mutable_data_ptr<int64_t>();
  for (const auto& [row, place] : pairs) {
    std::copy_n(source + row * columns, columns, target + place * columns);
  }
}

}  // namespace

Batch TableDataset::get_batch(const at::Tensor& indices) const {
  const at::Tensor rows = indices.contiguous();
  const int64_t count = rows.numel();
  std::map<size_t, std::vector<std::pair<int64_t, int64_t>>> of_group;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = rows.const_data_ptr<int64_t>()[i];
    const size_t group = find_group(row);
    of_group[group].emplace_back(row - starts_[group], i);
  }
  const auto categories = std::ssize(summary_->of_type(ColumnType::category));
  const auto numbers = std::ssize(summary_->features) - categories;
  Batch batch;
  batch.tensors.push_back(empty_batch({count, numbers}, at::TensorOptions().dtype(dtype_)));
  if (categories > 0) batch.tensors.push_back(empty_batch({count, categories}, at::TensorOptions().dtype(at::kLong)));
  const bool has_classes = source_.target && source_.target->type == ColumnType::category;
  if (source_.target) {
    batch.tensors.push_back(empty_batch({count}, at::TensorOptions().dtype(has_classes ? at::kLong : dtype_)));
  }
  for (const auto& [group, pairs] : of_group) {
    const auto values = group_of(group);
    copy_rows(values->numbers, batch.tensors[0], pairs);
    if (categories > 0) widen_rows(values->categories, batch.tensors[1], pairs);
    if (!source_.target) continue;
    copy_rows(values->targets, batch.tensors.back(), pairs);
    for (const auto& [row, place] : pairs) {
      const auto column = [&] { return "column " + in_quotes(column_name(source_, *source_.target)); };
      if (!has_classes) {
        const double number = dtype_ == at::kDouble ? values->targets.const_data_ptr<double>()[row]
                                                    : static_cast<double>(values->targets.const_data_ptr<float>()[row]);
        if (!std::isfinite(number))
          source_.fail(group, row, "expected a finite number in " + column() + ", the target.");
        continue;
      }
      const int64_t label = values->targets.const_data_ptr<int64_t>()[row];
      if (label >= 0) continue;
      source_.fail(group, row,
                   std::string(label == -1 ? "no class" : "an unknown class") + " in " + column() +
                       ". Known: " + cut_text(join(summary_->target.values), 1000) + ".");
    }
  }
  batch.set_structure(names_);
  return batch;
}

std::string TableDataset::sample_id(int64_t index) const {
  if (!source_.id) return std::to_string(index);
  const size_t group = find_group(index);
  const auto values = group_of(group);
  const int32_t code = values->ids[static_cast<size_t>(index - starts_[group])];
  return code < 0 ? std::to_string(index) : values->id_texts[static_cast<size_t>(code)];
}

}  // namespace levin
