#include "levin/data/files/csv_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/log.h"

namespace levin {

namespace {

constexpr int64_t kMaxWarnings = 10;
constexpr int64_t kMaxDamaged = 1000;
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

void CsvFile::index(const Visit& visit, OnRowError on_error) {
  CsvScanner scanner(path_, text(), delimiter_, first_row_);
  scanner.set_fields(names_.size(), first_line_);
  for (Row row; !names_.empty(); ++rows_) {
    try {
      if (!scanner.next(row)) break;
      visit(row);
    } catch (const DataError& error) {
      if (on_error == OnRowError::raise) throw;
      note_damage(scanner, error.what());
      visit({});
    }
    if (rows_ % kRowsPerPosition == 0) positions_.push_back(scanner.row_position());
  }
  if (rows_ == 0) throw DataError(path_ + ": it holds no rows of data.");
  check_damage(/*is_end=*/true);
  positions_.shrink_to_fit();
}

void CsvFile::note_damage(CsvScanner& scanner, const std::string& reason) {
  scanner.leave_row();
  counted_ = {scanner.row_position(), scanner.line_of(scanner.row_position())};
  scanner.set_line(counted_.first, counted_.second);
  damaged_.emplace(rows_, Damage{scanner.position(), reason});
  check_damage(/*is_end=*/false);
  if (std::ssize(damaged_) <= kMaxWarnings) log::data.warn("left out: {}", reason);
}

// A file of which most is damaged is another file than the options say.
void CsvFile::check_damage(bool is_end) const {
  const auto damaged = std::ssize(damaged_);
  if (damaged == 0) return;
  const bool is_all = is_end && damaged == rows_;
  if (is_all || (damaged > kMaxDamaged && damaged > rows_ / 10)) {
    throw DataError(path_ + ": " + std::to_string(damaged) + " of the first " +
                    count_of(is_end ? rows_ : rows_ + 1, "row") + " cannot be read. The first: " +
                    damaged_.begin()->second.reason + " Check the options delimiter and header, and the columns.");
  }
  if (is_end && damaged > kMaxWarnings) log::data.warn("{}: {} rows are left out.", path_, damaged);
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
  for (int64_t i = row - row % kRowsPerPosition; i < row; ++i) (void)next(scanner, i, skipped);
  return scanner;
}

bool CsvFile::next(CsvScanner& scanner, int64_t number, Row& row) const {
  const auto damage = damaged_.find(number);
  if (damage == damaged_.end()) return scanner.next(row);
  row.clear();
  scanner.go_to(damage->second.end);
  return true;
}

void CsvFile::read(int64_t first, int64_t count, const Visit& visit) const {
  if (count <= 0) return;
  CsvScanner scanner = at_row(first);
  Row row;
  for (int64_t number = first; number < first + count; ++number) {
    if (!next(scanner, number, row)) throw DataError(path_ + ": the file has changed since it was opened.");
    visit(row);
  }
}

int64_t CsvFile::line_of(int64_t row) const {
  CsvScanner scanner = at_row(row);
  Row fields;
  return scanner.next(fields) ? scanner.line_of(scanner.row_position()) : 0;
}

void CsvFile::fail(const CsvScanner::Field& field, const std::string& what) const {
  CsvScanner scanner(path_, text(), delimiter_);
  scanner.set_line(counted_.first, counted_.second);
  scanner.fail(field.raw.data() - (field.is_quoted ? 1 : 0), what);
}

}  // namespace levin
