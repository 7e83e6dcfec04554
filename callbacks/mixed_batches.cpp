#include "levin/callbacks/mixed_batches.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_standard_gamma.h>
#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randperm.h>

#include "levin/core/error.h"
#include "levin/core/tensor_text.h"

namespace levin {

namespace {

// Beta(alpha, alpha), from two gamma variates of the CPU's default generator.
double draw_share(double alpha) {
  const at::Tensor pair = at::_standard_gamma(at::full({2}, alpha, at::kDouble));
  const double first = pair[0].item().toDouble(), sum = pair.sum().item().toDouble();
  return sum > 0 ? first / sum : 1;
}

}  // namespace

Batch MixedBatches::change_batch(Batch batch) {
  const bool skipped = settings_.p < 1 && at::rand({}, at::kDouble).item().toDouble() >= settings_.p;
  if (skipped || batch.size() == 0) return batch;
  const double kept = draw_share(settings_.alpha);
  const at::Tensor other = at::randperm(batch.size(), at::TensorOptions().dtype(at::kLong));
  return mixed(std::move(batch), kept, other.to(batch[settings_.input].device()));
}

Batch MixedBatches::mixed(Batch batch, double kept, const at::Tensor& other) const {
  at::Tensor& inputs = batch[settings_.input];
  at::Tensor& target = batch[settings_.target];
  if (!inputs.is_floating_point()) {
    throw Error(name_ + ": tensor " + std::to_string(settings_.input) + " of the batch is of type " +
                std::string(inputs.dtype().name()) +
                ", and only floating point inputs can be mixed. Set .input to the images' place in the batch.");
  }
  const at::Tensor shares = probabilities(target, inputs.scalar_type());
  inputs = mix_inputs(inputs, inputs.index_select(0, other), kept);
  target = shares * kept + shares.index_select(0, other) * (1 - kept);
  return batch;
}

at::Tensor MixedBatches::probabilities(const at::Tensor& target, at::ScalarType type) const {
  if (target.dim() == 1 && target.scalar_type() == at::kLong) {
    return at::one_hot(target, settings_.num_classes).to(type);
  }
  if (target.dim() == 2 && target.is_floating_point() && target.size(1) == settings_.num_classes) return target;
  throw Error(name_ + ": tensor " + std::to_string(settings_.target) + " of the batch has shape " +
              shape_text(target.sizes()) + " and type " + std::string(target.dtype().name()) +
              ". Give labels (batch) of type int64, or probabilities (batch, " + std::to_string(settings_.num_classes) +
              ").");
}

}  // namespace levin
