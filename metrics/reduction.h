// How several values become one number, in torchmetrics' words.
#pragma once

#include "levin/core/options/value.h"

namespace levin::metrics {

/// How the values of samples are reduced. none: returns a value for each sample.
enum class Reduction { mean, sum, none };

/// How the values of images are reduced, under the names that torchmetrics uses for them.
enum class ImageReduction { elementwise_mean, sum, none };

/// How the values of classes, or labels, are averaged. micro: computed from the counts of all classes together; macro:
/// their mean; weighted: their mean by number of samples; none: returns a value for each.
enum class Average { micro, macro, weighted, none };

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::Reduction> {
  static constexpr EnumName<metrics::Reduction> names[] = {
      {"mean", metrics::Reduction::mean}, {"sum", metrics::Reduction::sum}, {"none", metrics::Reduction::none}};
};

template <>
struct EnumNames<metrics::ImageReduction> {
  static constexpr EnumName<metrics::ImageReduction> names[] = {
      {"elementwise_mean", metrics::ImageReduction::elementwise_mean},
      {"sum", metrics::ImageReduction::sum},
      {"none", metrics::ImageReduction::none}};
};

template <>
struct EnumNames<metrics::Average> {
  static constexpr EnumName<metrics::Average> names[] = {{"micro", metrics::Average::micro},
                                                         {"macro", metrics::Average::macro},
                                                         {"weighted", metrics::Average::weighted},
                                                         {"none", metrics::Average::none}};
};

}  // namespace levin
