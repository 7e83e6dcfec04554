#include "levin/core/known_names.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "levin/core/error.h"

namespace levin {

namespace {

// With their bytes to decide between names that differ only by case.
bool comes_before(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end(),
                                          [&](char left, char right) { return lower(left) == lower(right); });
  if (in_a == a.end() && in_b == b.end()) return a < b;
  if (in_a == a.end() || in_b == b.end()) return in_a == a.end();
  return lower(*in_a) < lower(*in_b);
}

}  // namespace

std::string sorted_names(std::vector<std::string> names) {
  std::sort(names.begin(), names.end(), comes_before);
  return join(names);
}

std::string known_names(const std::string& name, const std::vector<std::string>& known) {
  return did_you_mean(name, known) + " Known: " + sorted_names(known) + ".";
}

}  // namespace levin
