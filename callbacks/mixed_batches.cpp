#include "levin/callbacks/mixed_batches.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_standard_gamma.h>
#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <cmath>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"

namespace levin {

namespace {

// Draws from Beta(alpha, alpha), as a ratio of two gamma variates of the CPU's default generator.
double draw_weight(double alpha) {
  const at::Tensor pair = at::_standard_gamma(at::full({2}, alpha, at::kDouble));
  const double first = pair[0].item().toDouble(), sum = pair.sum().item().toDouble();
  return sum > 0 ? first / sum : 1;
}

// Where the rectangle lies along one side of the image.
struct Span {
  int64_t first = 0;
  int64_t size = 0;
};

Span draw_span(int64_t side, double fraction) {
  const int64_t center = at::randint(side, {}, at::TensorOptions().dtype(at::kLong)).item().toLong();
  const auto length = static_cast<int64_t>(static_cast<double>(side) * fraction);
  const int64_t first = std::clamp<int64_t>(center - length / 2, 0, side);
  return {first, std::clamp<int64_t>(center - length / 2 + length, 0, side) - first};
}

}  // namespace

Batch MixedBatches::change_batch(Batch batch) {
  const bool skipped = p_ < 1 && at::rand({}, at::kDouble).item().toDouble() >= p_;
  if (skipped || batch.size() == 0) return batch;
  const double kept = draw_weight(alpha_);
  const at::Tensor other = at::randperm(batch.size(), at::TensorOptions().dtype(at::kLong));
  return mixed(std::move(batch), kept, other.to(batch[input_].device()));
}

Batch MixedBatches::mixed(Batch batch, double kept, const at::Tensor& other) const {
  at::Tensor& inputs = batch[input_];
  at::Tensor& target = batch[target_];
  if (!inputs.is_floating_point()) {
    throw Error(name_ + ": tensor " + std::to_string(input_) + " of the batch is of type " +
                std::string(inputs.dtype().name()) +
                ", and only floating point inputs can be mixed. Set .input to the index of the images in the batch.");
  }
  const at::Tensor both = probabilities(target, inputs.scalar_type());
  inputs = mix_inputs(inputs, inputs.index_select(0, other), kept);
  target = both * kept + both.index_select(0, other) * (1 - kept);
  return batch;
}

at::Tensor MixedBatches::probabilities(const at::Tensor& target, at::ScalarType type) const {
  if (target.dim() == 1 && target.scalar_type() == at::kLong) {
    return at::one_hot(target, num_classes_).to(type);
  }
  if (target.dim() == 2 && target.is_floating_point() && target.size(1) == num_classes_) return target;
  throw Error(name_ + ": tensor " + std::to_string(target_) + " of the batch has shape " + shape_text(target.sizes()) +
              " and type " + std::string(target.dtype().name()) +
              ". Give labels (batch) of type int64, or probabilities (batch, " + std::to_string(num_classes_) + ").");
}

at::Tensor MixUp::mix_inputs(const at::Tensor& inputs, const at::Tensor& others, double& kept) const {
  return inputs * kept + others * (1 - kept);
}

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

MixUp::MixUp(MixUpOptions options) : MixedBatches("MixUp", checked(options, "MixUpOptions")) {}

CutMix::CutMix(CutMixOptions options) : MixedBatches("CutMix", checked(options, "CutMixOptions")) {}

}  // namespace levin
