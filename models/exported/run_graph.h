// Calls the operators of a bound graph one after another, through LibTorch's dispatcher: autograd, autocast and
// whatever else is active see them as they see a C++ program's. Internal.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "levin/models/exported/bound_graph.h"

namespace levin::exported {

struct RunOptions {
  c10::Device device = c10::Device(c10::kCPU);  // where tensors are created
  /// Whether the module with these qualified names around a call is in training mode.
  std::function<bool(const BoundCall&)> is_training = {};
};

/// By index; those that are not computed yet, or not needed any more, are None.
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

}  // namespace levin::exported
