#include "levin/checkpoint/rename_rule.h"

#include <algorithm>

namespace levin {

namespace {

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

std::optional<std::string> renamed(const std::string& name, const std::vector<RenameRule>& rules) {
  const std::vector<std::string> parts = parts_of(name);
  for (const RenameRule& rule : rules) {
    const auto from = rule.from.empty() ? std::vector<std::string>() : parts_of(rule.from);
    if (from.size() > parts.size()) continue;
    std::vector<std::string> stood_for;
    bool fits = true;
    for (size_t i = 0; fits && i < from.size(); ++i) {
      fits = from[i] == "*" || from[i] == parts[i];
      if (from[i] == "*") stood_for.push_back(parts[i]);
    }
    if (!fits) continue;
    if (!rule.to) return std::nullopt;
    auto result = rule.to->empty() ? std::vector<std::string>() : parts_of(*rule.to);
    auto next = stood_for.begin();
    for (auto& part : result) {
      if (part == "*" && next != stood_for.end()) part = *next++;
    }
    result.insert(result.end(), parts.begin() + static_cast<std::ptrdiff_t>(from.size()), parts.end());
    std::string text;
    for (const auto& part : result) text += (&part == result.data() ? "" : ".") + part;
    return text;
  }
  return name;
}

bool detail::stars_match(const std::vector<RenameRule>& map) {
  const auto stars = [](const std::string& text) {
    const auto parts = parts_of(text);
    return std::count(parts.begin(), parts.end(), "*");
  };
  return std::all_of(map.begin(), map.end(),
                     [&](const RenameRule& rule) { return !rule.to || stars(*rule.to) == stars(rule.from); });
}

}  // namespace levin
