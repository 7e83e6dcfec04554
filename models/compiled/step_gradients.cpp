#include "levin/models/compiled/step_gradients.h"

#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>
#include <utility>

#include "levin/core/error.h"

namespace levin {

namespace {

namespace autograd = torch::autograd;

class CompiledBackward final : public autograd::Node {
 public:
  CompiledBackward(autograd::edge_list&& edges, std::vector<at::Tensor> gradients)
      : Node(std::move(edges)), gradients_(std::move(gradients)) {}

  [[nodiscard]] std::string name() const override { return "CompiledBackward"; }

  // The gradients are moved out, so that a parameter takes a tensor as its own instead of a copy.
  autograd::variable_list apply(autograd::variable_list&& of_loss) override {
    if (is_spent_) {
      throw Error(
          "CompiledModule: backward ran a second time through the loss of one training_step, whose gradients are "
          "computed once. Call training_step again.");
    }
    is_spent_ = true;
    autograd::variable_list gradients = std::move(gradients_);
    const at::Tensor& scale = of_loss[0];
    if (!scale.defined()) return autograd::variable_list(gradients.size());
    if (scale.item<double>() == 1.0) return gradients;
    for (at::Tensor& gradient : gradients) {
      if (gradient.defined()) gradient.mul_(scale);
    }
    return gradients;
  }

  void release_variables() override { gradients_.clear(); }

 private:
  std::vector<at::Tensor> gradients_;
  bool is_spent_ = false;
};

}  // namespace

void attach_gradients(const at::Tensor& loss, const std::vector<at::Tensor>& parameters,
                      std::vector<at::Tensor> gradients) {
  autograd::set_history(
      loss, std::make_shared<CompiledBackward>(autograd::collect_next_edges(parameters), std::move(gradients)));
}

}  // namespace levin
