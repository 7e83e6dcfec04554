#include "levin/core/files/csv.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

namespace levin {

namespace detail {

std::string quoted(const std::string& text) {
  return "\"" + text + "\"";
}

void fail_at(const std::string& path, int64_t line, int64_t column, const std::string& what) {
  throw DataError(path + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + what);
}

}  // namespace detail

namespace {

using Row = detail::CsvRow;

constexpr std::string_view kMarkOfUtf8 = "\xEF\xBB\xBF";  // spreadsheets write it

// `most` rows of the text at most.
std::vector<Row> rows_of(const std::string& path, const std::string& text, char delimiter, size_t most = SIZE_MAX) {
  CsvScanner scanner(path, text, delimiter);
  std::vector<Row> rows;
  std::vector<CsvScanner::Field> fields;
  int64_t line = 1;
  const char* line_start = text.data() + (text.starts_with(kMarkOfUtf8) ? kMarkOfUtf8.size() : 0);
  const char* counted = line_start;  // lines before it are counted
  while (rows.size() < most && scanner.next(fields)) {
    Row row;
    row.reserve(fields.size());
    for (const CsvScanner::Field& field : fields) {
      const char* at = field.raw.data() - (field.is_quoted ? 1 : 0);
      for (; counted < at; ++counted) {
        if (*counted != '\n') continue;
        ++line;
        line_start = counted + 1;
      }
      row.push_back({field.text(), line, at - line_start + 1});
    }
    if (rows.empty()) scanner.set_fields(row.size(), row[0].line);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::string CsvScanner::Field::text() const {
  if (!is_quoted || raw.find('"') == std::string_view::npos) return std::string(raw);
  std::string text;
  for (size_t from = 0; from < raw.size();) {
    const size_t quote = std::min(raw.find('"', from), raw.size() - 1);  // or the last character
    text.append(raw, from, quote + 1 - from);
    from = quote + (raw[quote] == '"' ? 2 : 1);
  }
  return text;
}

CsvScanner::CsvScanner(std::string path, std::string_view text, char delimiter, size_t position)
    : path_(std::move(path)), text_(text), delimiter_(delimiter), position_(position) {
  if (position == 0 && text_.starts_with(kMarkOfUtf8)) position_ = kMarkOfUtf8.size();
}

bool CsvScanner::next(std::vector<Field>& row) {
  while (!at_end()) {
    row.clear();
    row_ = position_;
    is_in_row_ = true;
    row.push_back(next_field());
    while (!at_end() && text_[position_] == delimiter_) {
      ++position_;
      row.push_back(next_field());
    }
    if (!at_end() && text_[position_] == '\r') ++position_;
    if (!at_end()) ++position_;
    is_in_row_ = false;
    if (row.size() == 1 && row[0].raw.empty() && !row[0].is_quoted) continue;  // an empty line
    if (fields_ != 0 && row.size() != fields_) {
      fail(text_.data() + row_, "expected " + count_of(static_cast<int64_t>(fields_), "field") + " as in line " +
                                    std::to_string(fields_line_) + ", saw " + std::to_string(row.size()) + ".");
    }
    return true;
  }
  return false;
}

bool CsvScanner::at_line_end() const {
  if (at_end() || text_[position_] == '\n') return true;
  return text_[position_] == '\r' && (position_ + 1 == text_.size() || text_[position_ + 1] == '\n');
}

CsvScanner::Field CsvScanner::next_field() {
  if (!at_end() && text_[position_] == '"') return next_quoted();
  const size_t start = position_;
  while (!at_end() && text_[position_] != delimiter_ && text_[position_] != '\n' && !at_line_end()) ++position_;
  return {text_.substr(start, position_ - start)};
}

CsvScanner::Field CsvScanner::next_quoted() {
  const size_t start = ++position_;
  while (true) {
    const size_t quote = text_.find('"', position_);
    if (quote == std::string_view::npos) {
      fail(text_.data() + start - 1, "the quote that opens here is never closed.");
    }
    position_ = quote + 1;
    if (at_end() || text_[position_] != '"') break;
    ++position_;
  }
  if (!at_line_end() && text_[position_] != delimiter_) {
    fail(text_.data() + position_, "expected a delimiter or the line's end after the closing quote, saw " +
                                       detail::quoted(std::string(1, text_[position_])) + ".");
  }
  return {text_.substr(start, position_ - 1 - start), true};
}

int64_t CsvScanner::line_of(size_t position) const {
  const bool is_later = position >= known_position_;
  const auto from = text_.begin() + static_cast<std::ptrdiff_t>(is_later ? known_position_ : 0);
  return (is_later ? known_line_ : 1) + std::count(from, text_.begin() + static_cast<std::ptrdiff_t>(position), '\n');
}

void CsvScanner::leave_row() {
  if (!std::exchange(is_in_row_, false)) return;
  const size_t end = text_.find('\n', row_);
  position_ = end == std::string_view::npos ? text_.size() : end + 1;
}

void CsvScanner::fail(const char* at, const std::string& what) const {
  const auto position = static_cast<size_t>(at - text_.data());
  const size_t before = position == 0 ? std::string_view::npos : text_.rfind('\n', position - 1);
  size_t line_start = before == std::string_view::npos ? 0 : before + 1;
  if (line_start == 0 && text_.starts_with(kMarkOfUtf8)) line_start = kMarkOfUtf8.size();
  detail::fail_at(path_, line_of(position), static_cast<int64_t>(position - line_start) + 1, what);
}

std::vector<std::vector<CsvField>> read_csv(const std::string& path, char delimiter) {
  return parse_csv(path, read_input(path), delimiter);
}

std::vector<std::vector<CsvField>> parse_csv(const std::string& path, const std::string& text, char delimiter) {
  return rows_of(path, text, delimiter);
}

std::vector<std::string> read_csv_header(const std::string& path, char delimiter) {
  constexpr std::streamsize kMaxBytes = 1 << 20;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string start(static_cast<size_t>(kMaxBytes), '\0');
  file.read(start.data(), kMaxBytes);
  start.resize(static_cast<size_t>(file.gcount()));
  std::vector<std::string> texts;
  for (const Row& row : rows_of(path, start, delimiter, 1)) {
    for (const CsvField& field : row) texts.push_back(field.text);
  }
  return texts;
}

}  // namespace levin
