// Numbers for people; number_text() is for programs.
#pragma once

#include <string>

namespace levin {

/// So many digits at most: "4", "0.0007038", "1e-08", "nan", "-inf".
[[nodiscard]] std::string short_number(double value, int digits = 4);

}  // namespace levin
