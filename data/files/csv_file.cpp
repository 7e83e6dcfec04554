#include "levin/data/files/csv_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr int64_t kRowsPerPosition = 16;  // 8 bytes for 16 rows; 8 rows are skipped on average to find a row

}  // namespace

bool parse_csv_number(std::string_view text, double& value) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  const char* last = text.data() + text.size();
  const char* first = std::find_if_not(text.data(), last, is_blank);
  while (last > first && is_blank(last[-1])) --last;
  if (last - first > 1 && *first == '+' && first[1] != '-') ++first;
  const auto [end, code] = std::from_chars(first, last, value);
  return code == std::errc() && end == last && first != last;
}

CsvFile::CsvFile(const std::string& path, char delimiter, bool header) : path_(path), delimiter_(delimiter) {
  std::error_code ignored;
  const bool is_special = std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
  is_special ? void(read_ = read_input(path)) : void(mapped_ = std::make_unique<const MappedFile>(path));
  CsvScanner scanner(path_, text(), delimiter_);
  Row row;
  if (!scanner.next(row)) return;
  for (size_t i = 0; i < row.size(); ++i) names_.push_back(header ? row[i].text() : std::to_string(i));
  first_line_ = scanner.line_of(scanner.row_position());
  first_row_ = header ? scanner.position() : scanner.row_position();
}

std::string_view CsvFile::text() const {
  if (mapped_ == nullptr) return read_;
  return {reinterpret_cast<const char*>(mapped_->data()), mapped_->size()};
}

void CsvFile::index(const Visit& visit) {
  CsvScanner scanner(path_, text(), delimiter_, first_row_);
  scanner.set_fields(names_.size(), first_line_);
  for (Row row; !names_.empty() && scanner.next(row); ++rows_) {
    if (rows_ % kRowsPerPosition == 0) positions_.push_back(scanner.row_position());
    visit(row);
  }
  if (rows_ == 0) throw DataError(path_ + ": it holds no rows of data.");
  positions_.shrink_to_fit();
}

void CsvFile::close() {
  mapped_ = nullptr;
  read_ = {};
  positions_ = {};
}

CsvScanner CsvFile::at_row(int64_t row) const {
  CsvScanner scanner(path_, text(), delimiter_, positions_.at(static_cast<size_t>(row / kRowsPerPosition)));
  scanner.set_fields(names_.size(), first_line_);
  Row skipped;
  for (int64_t i = row % kRowsPerPosition; i > 0; --i) (void)scanner.next(skipped);
  return scanner;
}

void CsvFile::read(int64_t first, int64_t count, const Visit& visit) const {
  if (count <= 0) return;
  CsvScanner scanner = at_row(first);
  Row row;
  for (; count > 0; --count) {
    if (!scanner.next(row)) throw DataError(path_ + ": the file has changed since it was opened.");
    visit(row);
  }
}

int64_t CsvFile::line_of(int64_t row) const {
  CsvScanner scanner = at_row(row);
  Row fields;
  return scanner.next(fields) ? scanner.line_of(scanner.row_position()) : 0;
}

void CsvFile::fail(const CsvScanner::Field& field, const std::string& what) const {
  CsvScanner(path_, text(), delimiter_).fail(field.raw.data() - (field.is_quoted ? 1 : 0), what);
}

}  // namespace levin
