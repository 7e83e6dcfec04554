#include "levin/optim/sam.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace levin {

namespace {

std::vector<at::Tensor> with_gradients(const Optimizer& optimizer) {
  std::vector<at::Tensor> params = optimizer.parameters();
  std::erase_if(params, [](const at::Tensor& param) { return !param.grad().defined(); });
  return params;
}

at::Tensor norm_of_all(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> norms = at::_foreach_norm(tensors);
  for (auto& norm : norms) norm = norm.to(norms[0].options());  // of several devices, or types
  return at::linalg_vector_norm(at::stack(norms));
}

void put_back(const std::vector<at::Tensor>& params, const std::vector<at::Tensor>& values) {
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(params, values);
}

}  // namespace

SAM::SAM(SAMOptions options)
    : WrappingOptimizer(make_inner(options.optimizer, "SAM"), defaults_of(options.optimizer, "SAM"), "SAM"),
      options_(checked(std::move(options), "SAMOptions")) {}

SAM::SAM(std::shared_ptr<Optimizer> inner, SAMOptions options) : WrappingOptimizer(inner, defaults_of(*inner), "SAM") {
  options.optimizer = spec_of(*inner);
  options_ = checked(std::move(options), "SAMOptions");
}

// Equation 2 of the paper: gradient / norm * rho; adaptive: of weights^2 * gradient, over the norm of |weights| *
// gradient.
std::vector<at::Tensor> SAM::climb(const std::vector<at::Tensor>& params) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> steps, before;
  for (const auto& param : params) {
    steps.push_back(param.grad());
    before.push_back(param.detach().clone());
  }
  const std::vector<at::Tensor> sizes = options_.adaptive ? at::_foreach_abs(before) : std::vector<at::Tensor>();
  if (options_.adaptive) steps = at::_foreach_mul(steps, sizes);
  const at::Tensor length = options_.rho / (norm_of_all(steps) + 1e-12);
  if (options_.adaptive) steps = at::_foreach_mul(steps, sizes);
  for (size_t i = 0; i < params.size(); ++i) {
    params[i].add_(steps[i] * length.to(steps[i].options()));
  }
  return before;
}

at::Tensor SAM::do_step(const Closure* closure) {
  const at::Tensor loss = (*closure)();
  const std::vector<at::Tensor> params = with_gradients(*this);
  if (params.empty()) return loss;
  const std::vector<at::Tensor> before = climb(params);
  try {
    (*closure)();
  } catch (...) {
    put_back(params, before);
    throw;
  }
  put_back(params, before);
  step_inner();
  return loss;
}

ConfigNode SAM::written_options() const {
  return write_options(options_);
}

}  // namespace levin
