#include "levin/data/columns/table_summary.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "levin/core/options/error.h"

namespace levin {

namespace {

// As bytes and lengths: values may be any bytes, and there may be a million of them.
void put_values(State& state, const std::string& key, const std::vector<std::string>& values) {
  std::string bytes;
  at::Tensor lengths = at::empty({std::ssize(values)}, at::TensorOptions().dtype(at::kLong));
  for (size_t i = 0; i < values.size(); ++i) {
    bytes += values[i];
    lengths.mutable_data_ptr<int64_t>()[i] = std::ssize(values[i]);
  }
  at::Tensor text = at::empty({std::ssize(bytes)}, at::TensorOptions().dtype(at::kByte));
  if (!bytes.empty()) std::memcpy(text.mutable_data_ptr(), bytes.data(), bytes.size());
  state.tensors[key + ".values"] = text;
  state.tensors[key + ".lengths"] = lengths;
}

[[noreturn]] void fail_state(const std::string& what) {
  throw CheckpointError("the state of the table's data: " + what + ". Is the checkpoint damaged?");
}

std::vector<std::string> get_values(const State& state, const std::string& key) {
  const at::Tensor text = state.tensor(key + ".values").contiguous(),
                   lengths = state.tensor(key + ".lengths").contiguous();
  if (text.scalar_type() != at::kByte || text.dim() != 1) fail_state(key + ".values are not bytes");
  if (lengths.scalar_type() != at::kLong || lengths.dim() != 1) fail_state(key + ".lengths are not int64");
  const auto* from = reinterpret_cast<const char*>(text.const_data_ptr());
  int64_t left = text.numel();
  std::vector<std::string> values;
  for (int64_t i = 0; i < lengths.numel(); ++i) {
    const int64_t length = lengths.const_data_ptr<int64_t>()[i];
    if (length < 0 || length > left) fail_state(key + ".lengths do not fit " + key + ".values");
    values.emplace_back(from, static_cast<size_t>(length));
    from += length;
    left -= length;
  }
  return values;
}

State state_of(const TableColumn& column) {
  State state;
  state.set("name", column.name);
  state.set<bool>("is_category", column.type == ColumnType::category);
  state.set<double>("mean", column.mean);
  state.set<double>("std", column.std);
  state.set<bool>("has_missing", column.has_missing);
  state.set<int64_t>("codes", column.num_codes());
  put_values(state, "categories", column.values);
  return state;
}

TableColumn column_from(const State& state) {
  TableColumn column;
  column.name = state.get<std::string>("name");
  column.type = state.get<bool>("is_category") ? ColumnType::category : ColumnType::number;
  column.mean = state.get<double>("mean");
  column.std = state.get<double>("std");
  column.has_missing = state.get<bool>("has_missing");
  column.values = get_values(state, "categories");
  return column;
}

}  // namespace

TableSizes TableSizes::of(const TableSummary& summary) {
  TableSizes sizes;
  for (const TableColumn& column : summary.features) sizes.add(column.type, column.num_codes());
  sizes.classes = summary.target.type == ColumnType::category ? std::ssize(summary.target.values) : 0;
  sizes.has_target = !summary.target.name.empty();
  return sizes;
}

TableSizes TableSizes::of(const State& saved) {
  const auto type = [](const State& column) {
    return column.get<bool>("is_category") ? ColumnType::category : ColumnType::number;
  };
  TableSizes sizes;
  const auto count = saved.get<int64_t>("features");
  for (int64_t i = 0; i < count; ++i) {
    const State column = saved.part("feature" + std::to_string(i));
    sizes.add(type(column), column.get<int64_t>("codes"));
  }
  const State target = saved.part("target");
  sizes.classes = type(target) == ColumnType::category ? target.get<int64_t>("codes") - 1 : 0;
  sizes.has_target = !target.get<std::string>("name").empty();
  return sizes;
}

void TableSizes::add(ColumnType type, int64_t num_codes) {
  if (num_codes < 1) fail_state("a column has " + std::to_string(num_codes) + " codes");
  type == ColumnType::number ? void(++numbers) : codes.push_back(num_codes);
}

std::vector<TableColumn> TableSummary::of_type(ColumnType type) const {
  std::vector<TableColumn> found;
  std::copy_if(features.begin(), features.end(), std::back_inserter(found),
               [type](const TableColumn& column) { return column.type == type; });
  return found;
}

State TableSummary::state_dict() const {
  State state;
  state.set<int64_t>("features", std::ssize(features));
  for (size_t i = 0; i < features.size(); ++i) state.put("feature" + std::to_string(i), state_of(features[i]));
  state.put("target", state_of(target));
  put_values(state, "file_columns", file_columns);
  return state;
}

TableSummary TableSummary::from(const State& saved) {
  TableSummary summary;
  const auto count = saved.get<int64_t>("features");
  for (int64_t i = 0; i < count; ++i) {
    summary.features.push_back(column_from(saved.part("feature" + std::to_string(i))));
  }
  summary.target = column_from(saved.part("target"));
  summary.file_columns = get_values(saved, "file_columns");
  return summary;
}

void MomentSums::add(const std::vector<double>& numbers) {
  int64_t count = 0;
  double sum = 0, squares = 0;
  for (const double number : numbers) {
    if (std::isnan(number)) continue;
    sum += number;
    ++count;
  }
  if (count == 0) return;
  const double mean = sum / static_cast<double>(count);
  for (const double number : numbers) {
    if (!std::isnan(number)) squares += (number - mean) * (number - mean);
  }
  const auto had = static_cast<double>(count_), has = static_cast<double>(count);
  const double difference = mean - mean_;
  squares_ += squares + difference * difference * had * has / (had + has);
  mean_ += difference * has / (had + has);
  count_ += count;
}

double MomentSums::std() const {
  const double std = count_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(count_));
  return std > 0 ? std : 1;
}

}  // namespace levin
