#include "levin/data/sets/csv_columns.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>

#include "levin/core/options/error.h"

namespace levin::detail {

namespace {

// The number of a column among `count`; `count`: it is none.
size_t numbered(const std::string& wanted, size_t count) {
  size_t number = 0;
  const auto [end, code] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), number);
  return code == std::errc() && end == wanted.data() + wanted.size() && number < count ? number : count;
}

// Whether find_column() would find it.
bool has_column(const std::vector<std::string>& names, const std::string& wanted) {
  return std::find(names.begin(), names.end(), wanted) != names.end() || numbered(wanted, names.size()) < names.size();
}

size_t place_of(const std::vector<std::string>& names, const std::string& wanted) {
  return !wanted.empty() && has_column(names, wanted) ? find_column(names, wanted, "") : names.size();
}

// The number of the same column in a file without column `left_out`.
std::string without_column(const std::string& number, size_t left_out) {
  size_t column = 0;
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), column);
  return code == std::errc() && column > left_out ? std::to_string(column - 1) : number;
}

// What to do if a file's only column looks as if other characters were between its fields; "" otherwise.
std::string delimiter_hint(const std::vector<std::string>& names) {
  if (names.size() != 1) return "";
  for (const auto& [character, written] : {std::pair(';', ";"), {'\t', "\\t"}, {'|', "|"}, {',', ","}}) {
    if (names[0].find(character) == std::string::npos) continue;
    return std::string(" The file has a single column: set delimiter: \"") + written +
           "\" if its fields are separated so.";
  }
  return "";
}

// With names instead of numbers, and with all features.
CsvColumns by_name(const CsvColumns& columns, const std::vector<std::string>& names) {
  const auto name = [&](const std::string& wanted) {
    const size_t place = place_of(names, wanted);
    return place < names.size() && std::count(names.begin(), names.end(), names[place]) == 1 ? names[place] : wanted;
  };
  CsvColumns named{{}, name(columns.target), name(columns.id)};
  for (const std::string& feature : columns.features) named.features.push_back(name(feature));
  if (named.features.empty()) named.features = other_columns(names, columns);
  return named;
}

}  // namespace

std::vector<std::string> column_names(const std::vector<CsvRow>& rows, bool header) {
  std::vector<std::string> names;
  for (size_t i = 0; i < rows[0].size(); ++i) names.push_back(header ? rows[0][i].text : std::to_string(i));
  return names;
}

size_t find_column(const std::vector<std::string>& names, const std::string& wanted, const std::string& path) {
  const auto count = std::count(names.begin(), names.end(), wanted);
  if (count > 1) {
    throw DataError(path + ": " + count_of(count, "column") + " are called " + quoted(wanted) +
                    ". Choose by number, from 0.");
  }
  if (count == 1) return static_cast<size_t>(std::find(names.begin(), names.end(), wanted) - names.begin());
  if (const size_t number = numbered(wanted, names.size()); number < names.size()) return number;
  throw DataError(path + ": no column " + quoted(wanted) + ". Columns: " + join(names) + "." +
                  did_you_mean(wanted, names) + delimiter_hint(names));
}

std::vector<std::string> sorted_classes(std::vector<std::string> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::vector<std::pair<double, std::string>> numbers;
  for (const std::string& text : values) {
    double value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size()) return values;
    if (std::isnan(value)) value = std::numeric_limits<double>::infinity();  // has no place among numbers
    numbers.emplace_back(value, text);
  }
  std::stable_sort(numbers.begin(), numbers.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::move(numbers[i].second);
  return values;
}

std::vector<std::string> sorted_classes(const std::vector<CsvRow>& rows, size_t first_row, size_t column) {
  std::unordered_set<std::string> values;
  for (size_t i = first_row; i < rows.size(); ++i) values.insert(rows[i][column].text);
  return sorted_classes(std::vector<std::string>(values.begin(), values.end()));
}

std::vector<std::string> read_column_names(const std::string& path, bool header, char delimiter) {
  std::vector<std::string> names = read_csv_header(path, delimiter);
  for (size_t i = 0; !header && i < names.size(); ++i) names[i] = std::to_string(i);
  return names;
}

std::vector<std::string> other_columns(const std::vector<std::string>& names, const CsvColumns& columns) {
  const size_t target = place_of(names, columns.target), id = place_of(names, columns.id);
  std::unordered_map<std::string_view, int> counts;
  for (const std::string& name : names) ++counts[name];
  std::vector<std::string> others;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i != target && i != id) others.push_back(counts[names[i]] == 1 ? names[i] : std::to_string(i));
  }
  return others;
}

CsvColumns columns_of_new_file(const CsvColumns& columns, bool header, const std::vector<std::string>& training,
                               const std::vector<std::string>& own, bool may_lack_target, const std::string& path) {
  CsvColumns found = columns;
  if (header && !training.empty()) {
    found = by_name(columns, training);
    for (const std::string& name : found.features) {
      if (!own.empty()) (void)find_column(own, name, path);
    }
  }
  const bool lacks_target =
      header || training.empty() ? !has_column(own, found.target) : own.size() + 1 == training.size();
  if (may_lack_target && lacks_target && !own.empty()) {
    const size_t target = place_of(training, columns.target);
    found.target.clear();
    for (std::string& feature : found.features) feature = header ? feature : without_column(feature, target);
    found.id = header ? found.id : without_column(found.id, target);
  }
  if (found.features == other_columns(own, found)) found.features.clear();
  return found;
}

ClassNumbers::ClassNumbers(const std::vector<std::string>& classes) : classes_(classes) {
  for (size_t i = 0; i < classes.size(); ++i) numbers_.emplace(classes[i], static_cast<int64_t>(i));
}

int64_t ClassNumbers::find(const std::string& text) const {
  const auto found = numbers_.find(text);
  return found == numbers_.end() ? -1 : found->second;
}

int64_t ClassNumbers::of(const CsvField& field, const std::string& path) const {
  const int64_t number = find(field.text);
  if (number >= 0) return number;
  fail_at(path, field.line, field.column, unknown_text(field.text));
}

std::string ClassNumbers::unknown_text(const std::string& text) const {
  return "unknown class " + quoted(text) + ". Known: " + cut_text(join(classes_), 1000) + ".";
}

}  // namespace levin::detail
