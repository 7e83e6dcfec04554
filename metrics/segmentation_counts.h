// Pixels of each class in segmentation masks: predicted, true, and both.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "levin/core/value.h"

namespace levin::metrics {

/// one_hot: both (N, C, ...), integers of 0 and 1, or scores of which the highest counts. index: both (N, ...), the
/// classes as integers. mixed: one as one_hot, the other as index.
enum class MaskFormat { one_hot, index, mixed };

struct MaskSpec {
  std::string metric = "";  // its name, for messages
  int64_t classes = 1;
  bool include_background = true;  // false: without class 0
  MaskFormat format = MaskFormat::one_hot;

  /// Classes that are counted.
  [[nodiscard]] int64_t counted() const { return include_background || classes == 1 ? classes : classes - 1; }
};

/// Each (N, counted classes), int64, on the masks' device.
struct MaskCounts {
  at::Tensor both;
  at::Tensor preds;
  at::Tensor target;
};

/// Throws Error naming the metric, what was given and what it takes if shapes or types do not fit. On the CPU a class
/// that is out of range is an error too; on another device it counts for none, and no number is read.
[[nodiscard]] MaskCounts mask_counts(const MaskSpec& spec, const at::Tensor& preds, const at::Tensor& target);

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::MaskFormat> {
  static constexpr std::array names{std::pair{"one-hot", metrics::MaskFormat::one_hot},
                                    std::pair{"index", metrics::MaskFormat::index},
                                    std::pair{"mixed", metrics::MaskFormat::mixed}};
};

}  // namespace levin
