#include "levin/data/sets/csv_columns.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "levin/core/count_of.h"
#include "levin/core/error.h"

namespace levin::detail {

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
  size_t number = 0;
  const auto [end, code] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), number);
  if (code == std::errc() && end == wanted.data() + wanted.size() && number < names.size()) return number;
  throw DataError(path + ": there is no column " + quoted(wanted) + ". Columns: " + join(names) + "." +
                  did_you_mean(wanted, names));
}

std::vector<std::string> sorted_classes(const std::vector<CsvRow>& rows, size_t first_row, size_t column) {
  std::map<std::string, double> texts;
  bool all_numbers = true;
  for (size_t i = first_row; i < rows.size(); ++i) {
    const std::string& text = rows[i][column].text;
    double value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    all_numbers = all_numbers && code == std::errc() && end == text.data() + text.size();
    texts[text] = value;
  }
  std::vector<std::pair<std::string, double>> sorted(texts.begin(), texts.end());
  if (all_numbers) {
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  }
  std::vector<std::string> classes;
  for (const auto& [text, value] : sorted) classes.push_back(text);
  return classes;
}

int64_t class_in(const CsvField& field, const std::vector<std::string>& classes, const std::string& path) {
  const auto found = std::find(classes.begin(), classes.end(), field.text);
  if (found != classes.end()) return found - classes.begin();
  fail_at(path, field.line, field.column, "unknown class " + quoted(field.text) + ". Known: " + join(classes) + ".");
}

}  // namespace levin::detail
