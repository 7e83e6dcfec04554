#include "levin/precision/grad_scaler.h"

#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "levin/core/tensors.h"
#include "levin/precision/nonfinite.h"

namespace levin {

namespace {

using Tensors = std::vector<at::Tensor>;

void check_unscalable(const Tensors& grads) {
  for (const auto& grad : grads) {
    if (grad.scalar_type() == at::kHalf) {
      throw Error(
          "GradScaler: a gradient is float16, so it overflowed or vanished before it could be unscaled. Keep the "
          "weights in float32 (precision: 16-mixed does), or use bf16-true.");
    }
    if (grad.layout() != at::kStrided) {
      throw Error("GradScaler: a gradient is sparse. Make the layer with sparse(false).");
    }
  }
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options)
    : options_(checked(options, "GradScalerOptions")), start_scale_(options_.init_scale) {}

void GradScaler::make_tensors(const at::Device& device) {
  if (!scale_.defined()) {
    scale_ = at::full({}, start_scale_, at::TensorOptions(at::kFloat).device(device));
    tracker_ = at::full({}, start_tracker_, at::TensorOptions(at::kInt).device(device));
  } else if (scale_.device() != device) {
    scale_ = scale_.to(device);
    tracker_ = tracker_.to(device);
  }
}

at::Tensor GradScaler::scale(const at::Tensor& loss) {
  make_tensors(loss.device());
  used_ = true;
  const bool is_small = loss.scalar_type() == at::kHalf || loss.scalar_type() == at::kBFloat16;
  return (is_small ? loss.to(at::kFloat) : loss).mul(scale_);
}

at::Tensor GradScaler::unscale_(const std::vector<at::Tensor>& params) {
  const at::NoGradGuard no_grad;
  const std::vector<Tensors> kinds = gradients_by_kind(params);
  if (kinds.empty()) return at::zeros({1}, scale_tensor().options());
  for (const auto& grads : kinds) check_unscalable(grads);
  if (!used_) {
    throw Error(
        "GradScaler: the gradients to unscale are of a loss that was never scaled. Call scale(loss).backward(), or "
        "manual_backward(loss) in a module.");
  }
  if (!scale_.defined()) make_tensors(kinds[0][0].device());  // the gradients are a checkpoint's
  // As in PyTorch, the reciprocal in double precision, so that scales other than powers of 2 are accurate enough.
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  at::Tensor found_inf = at::zeros({1}, scale_.options());
  scale_and_check(kinds, found_inf, inverse);
  return found_inf;
}

void GradScaler::update(const at::Tensor& found_inf) {
  make_tensors(found_inf.device());
  at::_amp_update_scale_(scale_, tracker_, found_inf, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
}

const at::Tensor& GradScaler::scale_tensor() {
  if (!scale_.defined()) make_tensors(at::kCPU);
  return scale_;
}

double GradScaler::scale_value() const {
  return scale_.defined() ? scale_.item().toDouble() : start_scale_;
}

State GradScaler::state_dict() const {
  State state;
  state.set("scale", scale_value());
  state.set("growth_tracker", tracker_.defined() ? tracker_.item().toLong() : start_tracker_);
  return state;
}

void GradScaler::load_state_dict(const State& saved) {
  start_scale_ = saved.get<double>("scale");
  start_tracker_ = saved.get<int64_t>("growth_tracker");
  used_ = true;  // a checkpoint may contain scaled gradients
  scale_ = tracker_ = at::Tensor();
}

}  // namespace levin
