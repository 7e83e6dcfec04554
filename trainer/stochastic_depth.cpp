#include "levin/trainer/stochastic_depth.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <ostream>

namespace levin {

namespace {

void check_probability(double p) {
  if (p >= 0 && p <= 1) return;
  throw Error("StochasticDepth.p: must be in [0, 1], got " + number_text(p) + ". It is the probability of a drop.");
}

}  // namespace

at::Tensor stochastic_depth(const at::Tensor& branch, double p, DropMode mode, bool training) {
  check_probability(p);
  if (!training || p == 0) return branch;
  if (p == 1) return at::zeros_like(branch);
  std::vector<int64_t> shape(static_cast<size_t>(branch.dim()), 1);
  if (mode == DropMode::row && branch.dim() > 0) shape[0] = branch.size(0);
  return branch * at::empty(shape, branch.options()).bernoulli_(1 - p).div_(1 - p);
}

StochasticDepthImpl::StochasticDepthImpl(double p, DropMode mode) : p_(p), mode_(mode) {
  check_probability(p);
}

at::Tensor StochasticDepthImpl::forward(const at::Tensor& branch) const {
  return stochastic_depth(branch, p_, mode_, is_training());
}

void StochasticDepthImpl::pretty_print(std::ostream& stream) const {
  stream << "StochasticDepth(p=" << p_ << ", mode=" << enum_name(mode_) << ")";
}

}  // namespace levin
