// How the values of images become one, in torchmetrics' words.
#pragma once

#include <array>
#include <utility>

#include "levin/core/value.h"

namespace levin::metrics {

enum class ImageReduction { elementwise_mean, sum, none };

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::ImageReduction> {
  static constexpr std::array names{std::pair{"elementwise_mean", metrics::ImageReduction::elementwise_mean},
                                    std::pair{"sum", metrics::ImageReduction::sum},
                                    std::pair{"none", metrics::ImageReduction::none}};
};

}  // namespace levin
