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

class CsvColumns final : public ColumnFile {
 public:
  CsvColumns(const std::string& path, char delimiter, bool header, const std::vector<std::string>& missing)
      : file_(path, delimiter, header), missing_(missing.begin(), missing.end()) {
    double number = 0;
    for (const std::string& text : missing) {
      number_may_be_missing_ |= parse_csv_number(text, number) && !std::isnan(number);
    }
    std::vector<char> is_text(file_.names().size(), 0);
    file_.index([&](const CsvFile::Row& row) {
      for (size_t i = 0; i < row.size(); ++i) {
        double value = 0;
        if (is_text[i] == 0 && !number_in(row[i], value) && !is_missing(row[i])) is_text[i] = 1;
      }
    });
    for (size_t i = 0; i < is_text.size(); ++i) {
      columns_.push_back({file_.names()[i], is_text[i] != 0 ? ColumnType::category : ColumnType::number,
                          is_text[i] != 0 ? "text" : "number"});
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

  [[nodiscard]] std::string read(size_t group, const std::vector<WantedColumn>& wanted,
                                 std::vector<ColumnValues>& values) const override {
    values.assign(wanted.size(), {});
    std::vector<Codes> codes(wanted.size());
    file_.read(static_cast<int64_t>(group) * kRowsOfGroup, rows_.at(group), [&](const CsvFile::Row& row) {
      for (size_t k = 0; k < wanted.size(); ++k) {
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
    if (is_missing(field)) return std::numeric_limits<double>::quiet_NaN();
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
                                                   const std::vector<std::string>& missing) {
  return std::make_shared<CsvColumns>(path, delimiter, header, missing);
}

}  // namespace levin
