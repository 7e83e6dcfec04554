#include "levin/strategies/device/parallel_backward.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/libtorch/graph_nodes.h"

namespace levin {

namespace {

using Tensors = std::vector<at::Tensor>;

bool is_trained(const at::Tensor& parameter) {
  return parameter.requires_grad();
}

// Moves the gradients out of the leaves. For a tensor that is listed twice, only the first entry gets the gradient.
Tensors take_gradients(const std::vector<at::Tensor>& leaves) {
  Tensors gradients;
  for (const at::Tensor& leaf : leaves) {
    gradients.push_back(is_trained(leaf) ? std::exchange(leaf.mutable_grad(), at::Tensor()) : at::Tensor());
  }
  return gradients;
}

// The module itself is the first replica: while its backward runs, its parameters must have neither gradients of
// earlier batches nor hooks, both of which belong to the sum over all replicas.
class StashedGradients {
 public:
  explicit StashedGradients(const std::vector<at::Tensor>& parameters)
      : parameters_(parameters), gradients_(take_gradients(parameters)), hooks_(parameters.size()) {
    for (size_t p = 0; p < parameters_.size(); ++p) swap_hooks_of(p);
  }
  ~StashedGradients() {
    // In reverse: of a tensor that is listed twice, the first entry has the hooks.
    for (size_t p = parameters_.size(); p > 0; --p) swap_hooks_of(p - 1);
    for (size_t p = 0; p < parameters_.size(); ++p) {
      if (is_trained(parameters_[p])) parameters_[p].mutable_grad().reset();
    }
    for (size_t p = 0; p < parameters_.size(); ++p) {
      if (gradients_[p].defined()) parameters_[p].mutable_grad() = std::move(gradients_[p]);
    }
  }
  StashedGradients(const StashedGradients&) = delete;
  StashedGradients& operator=(const StashedGradients&) = delete;

 private:
  void swap_hooks_of(size_t p) {
    if (is_trained(parameters_[p])) swap_hooks(parameters_[p], hooks_[p]);
  }

  const std::vector<at::Tensor>& parameters_;
  Tensors gradients_;
  std::vector<GradientHooks> hooks_;
};

// Nothing else refers to its values, so the sum may be computed in place.
bool owns_values_alone(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
         tensor.is_non_overlapping_and_dense();
}

void add_to(at::Tensor& sum, at::Tensor gradient) {
  if (!gradient.defined()) return;
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (owns_values_alone(sum) && gradient.layout() == at::kStrided) {
    sum.add_(gradient);
  } else {
    sum = sum.add(gradient);
  }
}

// In backward its inputs are the gradients of the losses, and its outputs the gradients of the module's parameters.
class ReplicaGraphs final : public CustomNode {
 public:
  ReplicaGraphs(std::shared_ptr<Replicas> replicas, std::shared_ptr<ParallelApply> parallel, Tensors losses)
      : CustomNode(replicas->parameters()),
        replicas_(std::move(replicas)),
        parallel_(std::move(parallel)),
        losses_(std::move(losses)) {}

  std::string name() const override { return "ReplicaGraphs"; }
  void release_variables() override { losses_.clear(); }

  Tensors apply(Tensors&& gradients) override {
    if (at::GradMode::is_enabled()) {
      throw Error(
          "dp: backward of a batch's loss was called with create_graph, which is not supported on CPUs. Compute "
          "gradients of gradients in training_step, from the replica's own loss.");
    }
    if (losses_.empty()) {
      throw Error(
          "dp: backward went through the graph of a batch's loss a second time, after it was freed. Call the "
          "first backward with retain_graph.");
    }
    auto found = run_all(gradients);
    Tensors sums(replicas_->parameters().size());
    for (size_t p = 0; p < sums.size(); ++p) {
      at::Tensor others;
      for (size_t k = 1; k < found.size(); ++k) add_to(others, std::move(found[k][p]));
      sums[p] = std::move(found[0][p]);
      add_to(sums[p], std::move(others));
    }
    return sums;
  }

 private:
  std::vector<Tensors> run_all(const Tensors& gradients) {
    const bool keep_graph = keeps_graph();
    const StashedGradients stashed(replicas_->parameters());
    std::vector<Tensors> found(losses_.size());
    parallel_->resume(losses_.size(), [&](size_t k) {
      const auto& leaves = k == 0 ? replicas_->parameters() : replicas_->parameters_of_copy(k - 1);
      (void)take_gradients(leaves);  // left by a backward that failed
      const bool counts = losses_[k].defined() && losses_[k].requires_grad() && gradients[k].defined();
      if (counts) torch::autograd::backward({losses_[k]}, {gradients[k]}, keep_graph);
      found[k] = take_gradients(leaves);
    });
    return found;
  }

  std::shared_ptr<Replicas> replicas_;
  std::shared_ptr<ParallelApply> parallel_;
  Tensors losses_;  // by replica; undefined: the replica had no loss
};

}  // namespace

bool can_run_backward_in_parallel(const Replicas& replicas, const ParallelApply& parallel, size_t count) {
  if (count < 2 || !at::GradMode::is_enabled() || c10::InferenceMode::is_enabled()) return false;
  const auto& slots = parallel.slots();
  const auto& parameters = replicas.parameters();
  return std::all_of(slots.begin(), slots.end(), [](const DeviceSlot& slot) { return slot.device.is_cpu(); }) &&
         std::any_of(parameters.begin(), parameters.end(), is_trained);
}

std::vector<at::Tensor> with_parallel_backward(std::shared_ptr<Replicas> replicas,
                                               std::shared_ptr<ParallelApply> parallel,
                                               std::vector<at::Tensor> losses) {
  const auto has_graph = [](const at::Tensor& loss) { return loss.defined() && loss.requires_grad(); };
  if (std::none_of(losses.begin(), losses.end(), has_graph)) return losses;
  const GraphNodePtr node = make_graph_node<ReplicaGraphs>(std::move(replicas), std::move(parallel), losses);
  for (at::Tensor& loss : losses) {
    // One input per replica, including one that has no loss.
    const at::Tensor own = loss;
    loss = own.defined() ? own.detach().clone() : at::Tensor();
    has_graph(own) ? add_result(node, loss) : add_empty_result(node);
  }
  return losses;
}

}  // namespace levin
