#include "levin/data/tokenizers/pattern.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "levin/core/error.h"

namespace levin::tokenizers {

size_t find_literal(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* const found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

bool Pattern::find(std::string_view text, size_t from, Regex::Match& match, Budget& budget) const {
  if (regex_) return regex_->find(text, from, match, budget);
  const size_t begin = find_literal(text, literal_, from);
  match = {begin, begin + literal_.size()};
  budget.spend(std::min(begin, text.size()) - from);
  return begin != std::string_view::npos;
}

std::string Pattern::replaced(std::string_view text, std::string_view content, Budget& budget, size_t& first) const {
  std::string result;
  if (text.empty()) return result;
  size_t end = 0, new_first = 0;
  const auto append_text = [&](size_t to) {
    result.append(text.substr(end, to - end));
    if (end < first) new_first = result.size() - (std::max(to, first) - first);
  };
  const auto find_next = [&](std::string_view in, size_t from, Regex::Match& match) {
    return find(in, from, match, budget);
  };
  for_each_match(text, find_next, [&](size_t begin, size_t match_end) {
    append_text(begin);
    budget.check_bytes(result.size() + content.size());
    result.append(content);
    end = match_end;
    // The package counts what is put in to the last character of the match.
    if (first > 0 && end <= first) new_first = result.size();
  });
  append_text(text.size());
  first = new_first;
  return result;
}

Pattern make_pattern(const JsonNode& node) {
  if (node.value().is_string()) return Pattern(node.text());
  if (!node.at("String").is_null()) return Pattern(node.text("String"));
  if (node.at("Regex").is_null()) {
    node.refuse_value("an object with String or Regex");
    return Pattern(std::string());
  }
  const std::string pattern = node.text("Regex");
  try {
    return Pattern(Regex(pattern));
  } catch (const Error& error) {
    node.at("Regex").refuse(std::string(error.what()) + ".");
  }
  return Pattern(std::string());
}

}  // namespace levin::tokenizers
