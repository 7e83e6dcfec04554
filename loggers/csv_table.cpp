#include "levin/loggers/csv_table.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "levin/core/files/files.h"
#include "levin/core/options/config_node.h"

namespace levin {

namespace {

// Where the header's line ends: at a line end outside of quotes.
size_t header_end(std::string_view text) {
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] == '\n' && !quoted) return i;
  }
  return text.find('\n');
}

// The names of a header line, without the quotes that some need.
std::vector<std::string> column_names(std::string_view header) {
  std::vector<std::string> names(1);
  bool quoted = false;
  for (size_t i = 0; i < header.size(); ++i) {
    const bool doubled = quoted && header[i] == '"' && i + 1 < header.size() && header[i + 1] == '"';
    if (doubled) {
      names.back() += header[i++];
    } else if (header[i] == '"') {
      quoted = !quoted;
    } else if (header[i] == ',' && !quoted) {
      names.emplace_back();
    } else {
      names.back() += header[i];
    }
  }
  return names;
}

void split(std::string_view row, std::vector<std::string_view>& cells) {
  cells.clear();
  for (size_t begin = 0;;) {
    const size_t comma = row.find(',', begin);
    cells.push_back(row.substr(begin, comma - begin));
    if (comma == std::string_view::npos) return;
    begin = comma + 1;
  }
}

}  // namespace

std::string csv_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return std::to_string(static_cast<int64_t>(value)) + ".0";
  }
  return number_text(value);
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string csv_header(const std::vector<std::string>& columns) {
  std::string line;
  for (const auto& column : columns) line += (line.empty() ? "" : ",") + csv_field(column);
  return line + "\n";
}

CsvTable read_csv_table(const std::string& path) {
  CsvTable table;
  auto content = read_regular_file(path);  // a link leads to another's
  if (!content) return table;
  table.text = std::move(*content);
  const std::string_view text = table.text;
  const size_t first = header_end(text);
  if (first == std::string_view::npos) return table;
  table.columns = column_names(text.substr(0, first));
  size_t begin = first + 1;
  for (size_t end = text.find('\n', begin); end != std::string_view::npos; end = text.find('\n', begin)) {
    table.rows.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return table;
}

std::string csv_text(const CsvTable& table, size_t rows, const std::vector<std::string>& columns) {
  std::string content = csv_header(columns);
  std::unordered_map<std::string_view, size_t> old_places;
  for (size_t k = 0; k < table.columns.size(); ++k) old_places.emplace(table.columns[k], k);
  std::vector<size_t> places;  // of each column in an old row; none: beyond its end
  for (const auto& column : columns) {
    const auto found = old_places.find(column);
    places.push_back(found == old_places.end() ? std::string::npos : found->second);
  }
  const size_t kept = std::min(rows, table.rows.size());
  const size_t wider = columns.size() - std::min(columns.size(), table.columns.size());
  content.reserve(content.size() + table.text.size() + kept * wider);
  std::vector<std::string_view> cells;
  for (size_t row = 0; row < kept; ++row) {
    split(table.rows[row], cells);
    for (size_t k = 0; k < places.size(); ++k) {
      if (k > 0) content += ',';
      if (places[k] < cells.size()) content += cells[places[k]];
    }
    content += '\n';
  }
  return content;
}

}  // namespace levin
