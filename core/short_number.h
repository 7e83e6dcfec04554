// Numbers for people; number_text() is for programs.
#pragma once

#include <string>

namespace levin {

/// Four digits: "4", "0.0007038", "1e-08", "nan", "-inf".
[[nodiscard]] std::string short_number(double value);

}  // namespace levin
