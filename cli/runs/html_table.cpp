#include "levin/cli/runs/html_table.h"

#include <cmath>

#include "levin/cli/runs/html_text.h"
#include "levin/core/short_number.h"

namespace levin {

HtmlTable::HtmlTable(const std::vector<std::string>& titles) {
  for (const auto& title : titles) {
    const bool number = title.starts_with('#');
    is_number_.push_back(number);
    head_ += std::string("<th scope=\"col\"") + (number ? " class=\"n\"" : "") + ">" +
             html_text(number ? title.substr(1) : title) + "</th>";
  }
}

void HtmlTable::row(const std::vector<std::string>& cells) {
  rows_ += "<tr>";
  for (size_t k = 0; k < cells.size(); ++k) {
    const char* look = k < is_number_.size() && is_number_[k] ? " class=\"n\"" : "";
    rows_ += k == 0 ? "<th scope=\"row\">" + cells[k] + "</th>" : std::string("<td") + look + ">" + cells[k] + "</td>";
  }
  rows_ += "</tr>\n";
}

std::string HtmlTable::str() const {
  return "<div class=\"scroll\"><table><thead><tr>" + head_ + "</tr></thead>\n<tbody>" + rows_ +
         "</tbody></table></div>";
}

std::string html_section(const std::string& id, const std::string& title, const std::string& content) {
  if (content.empty()) return "";
  return "<section id=\"" + id + "\"><h2>" + html_text(title) + "</h2>\n" + content + "\n</section>\n";
}

std::string html_card(const std::string& content, const std::string& classes) {
  return "<div class=\"card" + (classes.empty() ? "" : " " + classes) + "\">" + content + "</div>";
}

std::string html_number(double value) {
  return std::isnan(value) ? "<span class=\"absent\">–</span>" : short_number(value);
}

}  // namespace levin
