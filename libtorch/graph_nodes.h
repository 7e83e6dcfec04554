// Nodes and edges of autograd's graph, and the hooks of its leaves. Nodes are held by shared_ptr up to LibTorch 2.11,
// and by intrusive_ptr from 2.13 on. Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace levin {

using GraphNode = torch::autograd::Node;
using GraphNodePtr = decltype(torch::autograd::Edge::function);
static_assert(std::is_same_v<GraphNodePtr, std::shared_ptr<GraphNode>> ||
                  std::is_same_v<GraphNodePtr, c10::intrusive_ptr<GraphNode>>,
              "This LibTorch has changed how autograd's nodes are held: adapt libtorch/graph_nodes.h.");

/// Base class of Levin's own nodes, whose apply() turns the gradients of its results into gradients of `inputs`.
class CustomNode : public GraphNode {
 public:
  explicit CustomNode(const std::vector<at::Tensor>& inputs) : GraphNode(torch::autograd::collect_next_edges(inputs)) {}
};

/// Creates a node that is freed without recursion through the nodes before it.
template <class T, class... Arguments>
[[nodiscard]] GraphNodePtr make_graph_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<GraphNodePtr, std::shared_ptr<GraphNode>>) {
    return GraphNodePtr(new T(std::forward<Arguments>(arguments)...), [](auto* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
  }
}

/// Makes `tensor` the next result of `node`, whose backward gets its gradient.
void add_result(const GraphNodePtr& node, const at::Tensor& tensor);
/// Counts one more result of `node`, which has no gradient.
void add_empty_result(const GraphNodePtr& node);

/// Returns the node that backward of `tensor` runs first; null: it needs no gradient.
[[nodiscard]] GraphNodePtr node_of(const at::Tensor& tensor);

/// Returns the leaf whose gradient the node accumulates; undefined for other nodes.
[[nodiscard]] at::Tensor leaf_of(const GraphNode& node);

/// Makes backward of `tensor` continue with the node that backward of `source` runs first.
void copy_graph(const at::Tensor& tensor, const at::Tensor& source);
/// Removes `tensor` from its graph.
void drop_graph(const at::Tensor& tensor);

/// Drops the node that accumulates gradients of `leaf`, whose device has changed; autograd makes another.
void forget_accumulator(const at::Tensor& leaf);

/// Calls `hook` after each gradient that is added to leaf.grad(); an empty function removes the hook.
void set_gradient_hook(const at::Tensor& leaf, std::function<void()> hook);

/// The hooks that were taken off a leaf.
struct GradientHooks {
  std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>> before = {};
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> after = nullptr;
};
/// Exchanges the leaf's hooks with `hooks`.
void swap_hooks(const at::Tensor& leaf, GradientHooks& hooks);

/// Returns whether the running backward keeps its graph. Call it only from a node.
[[nodiscard]] bool keeps_graph();

}  // namespace levin
