#include "levin/libtorch/graph_nodes.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>

namespace levin {

namespace {

namespace impl = torch::autograd::impl;

class GradientHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientHook(std::function<void()> call) : call_(std::move(call)) {}
  void operator()(const at::Tensor& /*leaf*/) override { call_(); }

 private:
  std::function<void()> call_;
};

}  // namespace

void add_result(const GraphNodePtr& node, const at::Tensor& tensor) {
  const auto index = node->add_input_metadata(tensor);
  impl::set_gradient_edge(tensor, {node, index});
}

void add_empty_result(const GraphNodePtr& node) {
  node->add_input_metadata(GraphNode::undefined_input());
}

GraphNodePtr node_of(const at::Tensor& tensor) {
  return impl::gradient_edge(tensor).function;
}

at::Tensor leaf_of(const GraphNode& node) {
  const auto* accumulates = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node);
  return accumulates == nullptr ? at::Tensor() : accumulates->variable;
}

void copy_graph(const at::Tensor& tensor, const at::Tensor& source) {
  impl::set_gradient_edge(tensor, source.requires_grad() ? impl::gradient_edge(source) : torch::autograd::Edge());
}

void drop_graph(const at::Tensor& tensor) {
  impl::set_gradient_edge(tensor, torch::autograd::Edge());
}

void forget_accumulator(const at::Tensor& leaf) {
  if (auto* meta = impl::get_autograd_meta(leaf)) {
    const std::lock_guard lock(meta->mutex_);
    meta->grad_accumulator_.reset();
  }
}

void set_gradient_hook(const at::Tensor& leaf, std::function<void()> hook) {
  impl::set_post_acc_grad_hooks(leaf, hook ? std::make_unique<GradientHook>(std::move(hook)) : nullptr);
}

void swap_hooks(const at::Tensor& leaf, GradientHooks& hooks) {
  std::swap(impl::hooks(leaf), hooks.before);
  std::swap(impl::post_acc_grad_hooks(leaf), hooks.after);
}

bool keeps_graph() {
  return torch::autograd::get_current_graph_task_keep_graph();
}

}  // namespace levin
