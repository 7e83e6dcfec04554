// Compares a call's inputs with what the program was exported for. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "levin/models/exported/graph.h"

namespace levin::exported {

/// The users' inputs of `inputs` in their order. Throws Error that names the input, its shape and the shape it was
/// exported for.
void check_inputs(const std::vector<InputSpec>& inputs, const std::vector<SizeRange>& ranges,
                  const std::vector<at::Tensor>& given, const std::string& path);

}  // namespace levin::exported
