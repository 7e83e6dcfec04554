// A table of a report.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace levin {

// --- Text of files, which nobody has checked, in a page.

/// For the text of an element and for a quoted attribute. Control characters and directional marks are shown as
/// escapes, what is not UTF-8 too.
[[nodiscard]] std::string html_text(std::string_view text);

/// The same, in one element that may be broken anywhere a name is long.
[[nodiscard]] std::string html_code(std::string_view text);

/// JSON in ASCII that may be written within a <script>: it contains no "<", ">" or "&".
[[nodiscard]] std::string script_text(const nlohmann::json& value);

/// A coordinate of an SVG with at most one decimal.
[[nodiscard]] std::string pixels(double value);

/// "1234567" as "1,234,567".
[[nodiscard]] std::string grouped_number(int64_t value);

/// Builds a table of a report, row by row. Not thread safe.
class HtmlTable {
 public:
  /// Titles are text; "#" before one makes a column of numbers.
  explicit HtmlTable(const std::vector<std::string>& titles);

  /// Cells are HTML, the first of them heads the row.
  void row(const std::vector<std::string>& cells);
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  [[nodiscard]] std::string str() const;

 private:
  std::vector<bool> is_number_ = {};
  std::string head_ = "";
  std::string rows_ = "";
};

/// A section with a heading, or "" if there is nothing in it.
[[nodiscard]] std::string html_section(const std::string& id, const std::string& title, const std::string& content);

/// HTML in a card.
[[nodiscard]] std::string html_card(const std::string& content, const std::string& classes = "");

/// A number, or a dash where it is not known.
[[nodiscard]] std::string html_number(double value);

}  // namespace levin
