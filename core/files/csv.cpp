#include "levin/core/files/csv.h"

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

using detail::fail_at;
using detail::quoted;
using Row = detail::CsvRow;

class Parser {
 public:
  Parser(std::string path, std::string text, char delimiter)
      : path_(std::move(path)), text_(std::move(text)), delimiter_(delimiter) {
    if (text_.starts_with("\xEF\xBB\xBF")) position_ = 3;  // the byte order mark that spreadsheets write
  }

  std::vector<Row> rows(size_t most = SIZE_MAX) {
    std::vector<Row> rows;
    while (!at_end() && rows.size() < most) {
      Row row = next_row();
      if (row.size() == 1 && row[0].text.empty() && !was_quoted_) continue;  // an empty line
      if (!rows.empty() && row.size() != rows[0].size()) {
        fail_at(path_, row[0].line, 1,
                "expected " + count_of(rows[0].size(), "field") + " as in line " + std::to_string(rows[0][0].line) +
                    ", saw " + std::to_string(row.size()) + ".");
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  [[nodiscard]] bool at_end() const { return position_ >= text_.size(); }
  [[nodiscard]] char here() const { return at_end() ? '\n' : text_[position_]; }
  [[nodiscard]] bool at_line_end() const {
    return here() == '\n' || (here() == '\r' && (position_ + 1 == text_.size() || text_[position_ + 1] == '\n'));
  }

  char take() {
    const char c = text_[position_++];
    ++column_;
    if (c == '\n') {
      ++line_;
      column_ = 1;
    }
    return c;
  }

  Row next_row() {
    Row row;
    while (true) {
      row.push_back(next_field());
      if (!at_end() && here() == delimiter_) {
        take();
        continue;
      }
      if (here() == '\r') take();
      if (!at_end()) take();
      return row;
    }
  }

  CsvField next_field() {
    CsvField field{"", line_, column_};
    was_quoted_ = !at_end() && here() == '"';
    if (was_quoted_) {
      take_quoted(field);
      if (!at_line_end() && here() != delimiter_) {
        fail_at(path_, line_, column_,
                "expected a delimiter or the line's end after the closing quote, saw " +
                    quoted(std::string(1, here())) + ".");
      }
    } else {
      while (!at_line_end() && here() != delimiter_) field.text += take();
    }
    return field;
  }

  void take_quoted(CsvField& field) {
    take();
    while (true) {
      if (at_end()) fail_at(path_, field.line, field.column, "the quote that opens here is never closed.");
      const char c = take();
      if (c != '"') {
        field.text += c;
      } else if (!at_end() && here() == '"') {
        field.text += take();
      } else {
        return;
      }
    }
  }

  std::string path_;
  std::string text_;
  char delimiter_;
  size_t position_ = 0;
  int64_t line_ = 1;
  int64_t column_ = 1;
  bool was_quoted_ = false;  // the field read last
};

}  // namespace

std::vector<std::vector<CsvField>> read_csv(const std::string& path, char delimiter) {
  return parse_csv(path, read_input(path), delimiter);
}

std::vector<std::vector<CsvField>> parse_csv(const std::string& path, std::string text, char delimiter) {
  return Parser(path, std::move(text), delimiter).rows();
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
  for (const Row& row : Parser(path, std::move(start), delimiter).rows(1)) {
    for (const CsvField& field : row) texts.push_back(field.text);
  }
  return texts;
}

}  // namespace levin
