#include "levin/optim/trust_ratio.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

namespace levin::detail {

at::Tensor stacked_norms(const std::vector<at::Tensor>& tensors) {
  return at::stack(at::_foreach_norm(tensors));
}

at::Tensor ratio_or_one(const at::Tensor& above, const at::Tensor& below) {
  return at::where((above > 0).logical_and_(below > 0), above / below, at::ones_like(above));
}

void scale_layers(std::vector<at::Tensor>& tensors, const at::Tensor& ratios, bool vectors) {
  const std::vector<at::Tensor> each = ratios.unbind();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].dim() > 1 || vectors) tensors[i].mul_(each[i]);
  }
}

}  // namespace levin::detail
