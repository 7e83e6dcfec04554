#include "levin/callbacks/cutmix.h"

#include <ATen/ops/randint.h>

#include <algorithm>
#include <cmath>

#include "levin/core/error.h"
#include "levin/core/tensor_text.h"

namespace levin {

namespace {

// Where the rectangle lies along one side of the image.
struct Span {
  int64_t first = 0;
  int64_t size = 0;
};

Span draw_span(int64_t side, double share) {
  const int64_t centre = at::randint(side, {}, at::TensorOptions().dtype(at::kLong)).item().toLong();
  const auto length = static_cast<int64_t>(static_cast<double>(side) * share);
  const int64_t first = std::clamp<int64_t>(centre - length / 2, 0, side);
  return {first, std::clamp<int64_t>(centre - length / 2 + length, 0, side) - first};
}

}  // namespace

CutMix::CutMix(CutMixOptions options)
    : MixedBatches("CutMix", {.alpha = checked(options, "CutMixOptions").alpha,
                              .p = options.p,
                              .num_classes = options.num_classes,
                              .input = static_cast<size_t>(options.input),
                              .target = static_cast<size_t>(options.target)}) {}

at::Tensor CutMix::mix_inputs(const at::Tensor& inputs, const at::Tensor& others, double& kept) const {
  if (inputs.dim() < 3) {
    throw Error(name_ + ": the images have shape " + shape_text(inputs.sizes()) +
                ", and a rectangle needs (batch, …, height, width). Let the data module keep the images' shape.");
  }
  const int64_t height = inputs.size(-2), width = inputs.size(-1);
  const double side = std::sqrt(1 - kept);
  const Span rows = draw_span(height, side), columns = draw_span(width, side);
  kept = 1 - static_cast<double>(rows.size * columns.size) / static_cast<double>(height * width);
  const at::Tensor result = inputs.clone();
  const auto cut = [&](const at::Tensor& images) {
    return images.narrow(-2, rows.first, rows.size).narrow(-1, columns.first, columns.size);
  };
  cut(result).copy_(cut(others));
  return result;
}

}  // namespace levin
