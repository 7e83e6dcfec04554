// Which argument of an operator says whether it trains. Internal.
#pragma once

#include <string>

namespace levin::exported {

/// The argument's name; "" if the operator is the same in training and evaluation. `op`: "aten::dropout".
[[nodiscard]] std::string mode_argument(const std::string& op);

}  // namespace levin::exported
