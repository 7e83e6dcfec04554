#include "levin/optim/muon.h"

#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>

namespace levin {

template class OptimizerOf<MuonOptions>;

namespace {

constexpr size_t kMatrix = 0;
constexpr size_t kAdamW = 1;

double shape_factor(AdjustLr adjust, at::IntArrayRef shape) {
  const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
  if (adjust == AdjustLr::match_rms_adamw) return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(std::max(1.0, rows / columns));
}

}  // namespace

namespace detail {
at::Tensor orthogonalize(const at::Tensor& matrix, const std::array<double, 3>& coefficients, int64_t steps,
                         double eps) {
  const auto [a, b, c] = coefficients;
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = matrix.to(at::kBFloat16);
  if (tall) x = x.t();
  x = x.div(x.norm().clamp_min(eps));  // no singular value is above 1
  for (int64_t i = 0; i < steps; ++i) {
    const at::Tensor gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a);
  }
  return tall ? x.t() : x;
}
}  // namespace detail

Muon::Muon(const NamedTensors& parameters, MuonOptions options) : OptimizerOf(std::move(options)) {
  take_names(parameters);
  std::vector<at::Tensor> params;
  for (const auto& [name, param] : parameters) {
    if (param.requires_grad()) params.push_back(param);
  }
  add_param_group({.params = std::move(params)});
}

void Muon::take_names(const NamedTensors& parameters) {
  std::vector<std::string> names;
  for (const auto& [name, param] : parameters) names.push_back(name);
  for (const auto& pattern : options_.adamw_params) {
    bool found = false;
    for (const auto& [name, param] : parameters) {
      if (fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
      adamw_.insert(param.unsafeGetTensorImpl());
      found = true;
    }
    if (found) continue;
    throw ConfigError("MuonOptions.adamw_params: no parameter's name matches \"" + pattern + "\"." +
                      did_you_mean(pattern, names) + " Parameters: " + join(names) + ".");
  }
  has_names_ = true;
}

size_t Muon::kind_of(const at::Tensor& param) const {
  if (!has_names_ && !options_.adamw_params.empty()) {
    throw Error(
        "Muon: adamw_params names parameters, and their names are not known. Construct it from "
        "named_parameters().pairs(), or call take_names() first.");
  }
  return param.dim() == 2 && !adamw_.contains(param.unsafeGetTensorImpl()) ? kMatrix : kAdamW;
}

bool Muon::uses_state(size_t index, const Group&, size_t kind) const {
  return (index == 0) == (kind == kMatrix);
}

void Muon::update(Batch& batch, const Group& group) {
  batch.kind == kMatrix ? update_matrices(batch, group) : update_by_adamw(batch, group);
}

void Muon::update_matrices(Batch& batch, const Group& group) const {
  const Tensors& means = batch.state[0];
  at::_foreach_lerp_(means, batch.grads, 1 - group.momentum);
  const Tensors momenta = options_.nesterov ? at::_foreach_lerp(batch.grads, means, group.momentum) : means;
  at::_foreach_mul_(batch.params, 1 - group.lr * group.weight_decay);
  for (size_t i = 0; i < batch.params.size(); ++i) {
    const at::Tensor direction =
        detail::orthogonalize(momenta[i], options_.ns_coefficients, options_.ns_steps, options_.eps);
    batch.params[i].add_(direction, -group.lr * shape_factor(options_.adjust_lr_fn, batch.params[i].sizes()));
  }
}

void Muon::update_by_adamw(Batch& batch, const Group& group) const {
  const double scale = options_.lr > 0 ? options_.adamw_lr.value_or(options_.lr) / options_.lr : 1;
  at::_fused_adamw_(batch.params, batch.grads, batch.state[1], batch.state[2], {}, batch.step_tensors, group.lr * scale,
                    options_.adamw_betas[0], options_.adamw_betas[1], group.weight_decay, options_.adamw_eps,
                    /*amsgrad=*/false, /*maximize=*/false);
}

}  // namespace levin
