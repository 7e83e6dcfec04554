// The backward of a compiled step: the gradients are there when its loss is, and wait for autograd to ask for them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace levin {

/// Gives `loss`, a scalar without a graph, one whose backward adds `gradients[k]`, times the gradient of the loss, to
/// `parameters[k]`: what autograd does for a step that is not compiled, hooks and reducers included. An undefined
/// gradient adds nothing. Works once: a second backward through it throws Error.
void attach_gradients(const at::Tensor& loss, const std::vector<at::Tensor>& parameters,
                      std::vector<at::Tensor> gradients);

}  // namespace levin
