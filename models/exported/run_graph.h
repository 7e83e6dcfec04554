// Calls the operators of a bound graph one after another, through LibTorch's dispatcher: autograd, autocast and
// anything else that is active see them as they see a C++ program's. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "levin/models/exported/bound_graph.h"
#include "levin/models/exported/graph.h"

namespace levin::exported {

struct RunOptions {
  c10::Device device = c10::Device(c10::kCPU);  // where tensors are created
  /// Whether the module with these qualified names around a call is in training mode.
  std::function<bool(const BoundCall&)> is_training = {};
};

/// By index; None for a value that is not computed yet, or not needed any more.
using Values = std::vector<c10::IValue>;

/// Runs the calls [begin, end). Throws as run_graph does.
void run_calls(const BoundGraph& graph, size_t begin, size_t end, Values& values, const RunOptions& options);

/// Puts the graph's inputs into its values.
[[nodiscard]] Values values_of(const BoundGraph& graph, std::vector<c10::IValue> inputs);
/// The graph's outputs.
[[nodiscard]] std::vector<c10::IValue> outputs_of(const BoundGraph& graph, const Values& values);

/// One value for each output. Throws LibTorch's error, with the node's name and line as its context, or Error.
[[nodiscard]] std::vector<c10::IValue> run_graph(const BoundGraph& graph, std::vector<c10::IValue> inputs,
                                                 const RunOptions& options);

// Compares a call's inputs with what the program was exported for.

/// The users' inputs of `inputs` in their order. Throws Error that names the input, its shape and the shape it was
/// exported for.
void check_inputs(const std::vector<InputSpec>& inputs, const std::vector<SizeRange>& ranges,
                  const std::vector<at::Tensor>& given, const std::string& path);

}  // namespace levin::exported
