#include "levin/data/columns/csv_columns_file.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "levin/core/files/csv.h"
#include "levin/core/options/error.h"
#include "levin/data/files/csv_file.h"

namespace levin {

namespace {

// Finds strings by views of them.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

constexpr int64_t kRowsOfGroup = 65536;  // as Arrow's files have
constexpr double kMissingNumber = std::numeric_limits<double>::quiet_NaN();

// The values of a column, without missing ones.
struct SeenValues {
  int64_t numbers = 0;
  int64_t texts = 0;
  std::string first_text = "";
  int64_t row_of_text = 0;
};

class CsvColumns final : public ColumnFile {
 public:
  CsvColumns(const std::string& path, char delimiter, bool header, const std::vector<std::string>& missing,
             OnRowError on_error)
      : file_(path, delimiter, header), missing_(missing.begin(), missing.end()) {
    double number = 0;
    for (const std::string& text : missing) {
      number_may_be_missing_ |= parse_csv_number(text, number) && !std::isnan(number);
    }
    std::vector<SeenValues> seen(file_.names().size());
    int64_t number_of_row = 0;
    file_.index(
        [&](const CsvFile::Row& row) {
          for (size_t i = 0; i < row.size(); ++i) note(seen[i], row[i], number_of_row);
          ++number_of_row;
        },
        on_error);
    for (size_t i = 0; i < seen.size(); ++i) {
      const bool is_text = seen[i].texts > 0;
      columns_.push_back({.name = file_.names()[i],
                          .type = is_text ? ColumnType::category : ColumnType::number,
                          .type_name = is_text ? "text" : "number",
                          .doubt = doubt_about(seen[i])});
    }
    for (int64_t first = 0; first < file_.rows(); first += kRowsOfGroup) {
      rows_.push_back(std::min(kRowsOfGroup, file_.rows() - first));
    }
  }

  [[nodiscard]] const std::vector<ColumnInfo>& columns() const override { return columns_; }
  [[nodiscard]] const std::vector<int64_t>& group_rows() const override { return rows_; }
  [[nodiscard]] std::string position_text(size_t group, int64_t row) const override {
    return "line " + std::to_string(file_.line_of(static_cast<int64_t>(group) * kRowsOfGroup + row));
  }

  [[nodiscard]] std::map<int64_t, std::string> damaged() const override {
    std::map<int64_t, std::string> rows;
    for (const auto& [row, damage] : file_.damaged()) rows.emplace(row, damage.reason);
    return rows;
  }

  [[nodiscard]] std::string read(size_t group, const std::vector<WantedColumn>& wanted,
                                 std::vector<ColumnValues>& values) const override {
    values.assign(wanted.size(), {});
    std::vector<Codes> codes(wanted.size());
    file_.read(static_cast<int64_t>(group) * kRowsOfGroup, rows_.at(group), [&](const CsvFile::Row& row) {
      for (size_t k = 0; k < wanted.size(); ++k) {
        if (row.empty()) {
          wanted[k].type == ColumnType::number ? values[k].numbers.push_back(kMissingNumber)
                                               : values[k].codes.push_back(-1);
          continue;
        }
        const CsvScanner::Field& field = row[wanted[k].column];
        if (wanted[k].type == ColumnType::number) {
          values[k].numbers.push_back(number_of(field, wanted[k].column));
        } else {
          const std::string unquoted = field.is_quoted ? field.text() : std::string();
          const std::string_view text = field.is_quoted ? unquoted : field.raw;
          values[k].codes.push_back(missing_.contains(text) ? -1 : code_of(text, codes[k], values[k].values));
        }
      }
    });
    return "";
  }

 private:
  void note(SeenValues& seen, const CsvScanner::Field& field, int64_t row) const {
    double value = 0;
    if (is_missing(field)) return;
    if (number_in(field, value)) return (void)++seen.numbers;
    if (seen.texts++ > 0) return;
    seen.first_text = field.text();
    seen.row_of_text = row;
  }
  // One value that is no number makes a column of numbers one of thousands of categories.
  [[nodiscard]] std::string doubt_about(const SeenValues& seen) const {
    if (seen.texts == 0 || seen.numbers < 9 * seen.texts) return "";
    return std::to_string(seen.numbers) + " of its " + std::to_string(seen.numbers + seen.texts) +
           " values are numbers, and line " + std::to_string(file_.line_of(seen.row_of_text)) + " has " +
           detail::quoted(cut_text(seen.first_text)) +
           ". If that marks a missing value, add it to the option `missing`; if it is a category, name the column in "
           "`categories`.";
  }

  using Codes = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;
  static int32_t code_of(std::string_view text, Codes& codes, std::vector<std::string>& values) {
    if (const auto found = codes.find(text); found != codes.end()) return found->second;
    const auto code = static_cast<int32_t>(values.size());
    codes.emplace(text, code);
    values.emplace_back(text);
    return code;
  }
  static bool number_in(const CsvScanner::Field& field, double& value) {
    return field.is_quoted ? parse_csv_number(field.text(), value) : parse_csv_number(field.raw, value);
  }
  [[nodiscard]] bool is_missing(const CsvScanner::Field& field) const {
    return field.is_quoted ? missing_.contains(field.text()) : missing_.contains(field.raw);
  }
  [[nodiscard]] double number_of(const CsvScanner::Field& field, size_t column) const {
    double value = 0;
    const bool is_number = number_in(field, value);
    if (is_number && !number_may_be_missing_) return value;
    if (is_missing(field)) return kMissingNumber;
    if (is_number) return value;
    file_.fail(field, "expected a number in column " + detail::quoted(columns_[column].name) + ", saw " +
                          detail::quoted(cut_text(field.text())) + ".");
  }

  CsvFile file_;
  std::unordered_set<std::string, TextHash, std::equal_to<>> missing_;
  bool number_may_be_missing_ = false;
  std::vector<ColumnInfo> columns_;
  std::vector<int64_t> rows_;
};

}  // namespace

std::shared_ptr<const ColumnFile> open_csv_columns(const std::string& path, char delimiter, bool header,
                                                   const std::vector<std::string>& missing, OnRowError on_error) {
  return std::make_shared<CsvColumns>(path, delimiter, header, missing, on_error);
}

}  // namespace levin
