// A table of a report.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace levin {

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
