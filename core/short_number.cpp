#include "levin/core/short_number.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace levin {

std::string short_number(double value, int digits) {
  if (std::isnan(value)) return "nan";  // printf may write -nan
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), "%.*g", digits, value);
  return text.data();
}

}  // namespace levin
