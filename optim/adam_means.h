// The step that NAdam and RAdam share: weight decay, and Adam's means of gradients and of their squares.
#pragma once

#include "levin/optim/optimizer.h"

namespace levin::detail {

struct AdamMeans {
  double beta2 = 0;  // beta1 in place of the group's momentum
  bool decoupled_weight_decay = false;
  bool maximize = false;

  /// Decays the parameters, or adds the decay to the gradients; updates the means. `grads` become the update's input.
  void update(const Optimizer::Group& group, const std::vector<at::Tensor>& params, std::vector<at::Tensor>& grads,
              const std::vector<at::Tensor>& exp_avg, const std::vector<at::Tensor>& exp_avg_sq) const;
};

}  // namespace levin::detail
