// How the values of samples become one.
#pragma once

#include <array>
#include <utility>

#include "levin/core/value.h"

namespace levin::metrics {

/// none: a value for each sample.
enum class Reduction { mean, sum, none };

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::Reduction> {
  static constexpr std::array names{std::pair{"mean", metrics::Reduction::mean},
                                    std::pair{"sum", metrics::Reduction::sum},
                                    std::pair{"none", metrics::Reduction::none}};
};

}  // namespace levin
