#include "levin/cli/runs/html.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"
#include "levin/core/options/utf8.h"

namespace levin {

std::string html_text(std::string_view text) {
  std::string safe;
  for (const char c : printable_text(text)) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default: safe += c;
    }
  }
  return safe;
}

std::string html_code(std::string_view text) {
  return "<code>" + html_text(text) + "</code>";
}

std::string script_text(const nlohmann::json& value) {
  std::string safe;
  for (const char c : value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace)) {
    safe += c == '<' ? "\\u003c" : c == '>' ? "\\u003e" : c == '&' ? "\\u0026" : std::string(1, c);
  }
  return safe;
}

std::string pixels(double value) {
  std::string text = formatted("%.1f", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string grouped_number(int64_t value) {
  std::string digits = std::to_string(value);
  for (size_t at = digits.size(); at > 3 + (value < 0 ? 1U : 0U);) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

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
