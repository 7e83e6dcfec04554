#include "levin/optim/clip_grad.h"

#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"
#include "levin/core/tensors.h"

namespace levin {

namespace {

using Tensors = std::vector<at::Tensor>;

}  // namespace

at::Tensor get_total_norm(const Tensors& params, double norm_type) {
  const at::NoGradGuard no_grad;
  const std::vector<Tensors> kinds = gradients_by_kind(params);
  if (kinds.empty()) return at::zeros({});
  Tensors norms;
  for (const auto& grads : kinds) {
    for (const auto& norm : at::_foreach_norm(grads, norm_type)) norms.push_back(norm.to(kinds[0][0].device()));
  }
  return at::linalg_vector_norm(at::stack(norms), norm_type);
}

void clip_grads_with_norm_(const Tensors& params, double max_norm, const at::Tensor& total_norm) {
  if (!(max_norm >= 0)) throw Error("clip_grad_norm_: max_norm must be >= 0, got " + number_text(max_norm) + ".");
  const at::NoGradGuard no_grad;
  const at::Tensor scale = total_norm.add(1e-6).reciprocal_().mul_(max_norm).clamp_max_(1.0);
  for (const auto& grads : gradients_by_kind(params)) at::_foreach_mul_(grads, scale.to(grads[0].device()));
}

at::Tensor clip_grad_norm_(const Tensors& params, double max_norm, double norm_type, bool error_if_nonfinite) {
  if (!(max_norm >= 0)) throw Error("clip_grad_norm_: max_norm must be >= 0, got " + number_text(max_norm) + ".");
  const at::Tensor total = get_total_norm(params, norm_type);
  if (error_if_nonfinite && !std::isfinite(total.item().toDouble())) {
    throw Error(
        "clip_grad_norm_: the norm of the gradients is " + number_text(total.item().toDouble()) +
        ". Lower the learning rate, look for the layer with detect_anomaly, or pass error_if_nonfinite = false.");
  }
  clip_grads_with_norm_(params, max_norm, total);
  return total;
}

void clip_grad_value_(const Tensors& params, double clip_value) {
  if (!(clip_value >= 0))
    throw Error("clip_grad_value_: clip_value must be >= 0, got " + number_text(clip_value) + ".");
  const at::NoGradGuard no_grad;
  for (const auto& grads : gradients_by_kind(params)) {
    at::_foreach_clamp_min_(grads, -clip_value);
    at::_foreach_clamp_max_(grads, clip_value);
  }
}

}  // namespace levin
