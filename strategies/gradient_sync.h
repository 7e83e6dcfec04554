// How the gradients of a step are computed and made equal on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "levin/strategies/loss_gradient.h"
#include "levin/strategies/rank_notes.h"

namespace levin {

class GradientSync {
 public:
  virtual ~GradientSync() = default;

  /// What computes the gradients of a loss from here on; empty: loss.backward().
  void use_backward(std::function<void(const at::Tensor&)> own) { gradient_.replace_by(std::move(own)); }

  /// Before each training_step. `sync`: its gradients will be reduced. Every rank.
  virtual void before_forward(bool /*sync*/) {}

  /// Adds the gradients of `loss` to the parameters. `sync`: they are also made equal on all ranks; false inside an
  /// accumulation window. With `sync` this rank's notes travel along, at the cost of no message: returns what any rank
  /// has said; without it they stay with the caller, and nothing is returned. Every rank.
  [[nodiscard]] virtual RankNotes backward(const at::Tensor& loss, bool sync, const RankNotes& own) = 0;

  /// Into how many parts, each with a forward and a backward pass of its own, it cuts the batch of one training step.
  [[nodiscard]] virtual int64_t micro_batches() const { return 1; }
  /// Adds the gradients of loss(0) to loss(count - 1), in the order that suits the devices. `loss` runs the module.
  virtual void run_micro_batches(size_t count, const std::function<at::Tensor(size_t)>& loss);

  /// The backward of a rank that has no loss in this batch: its gradients are zeros. `sync` and `own` as above.
  [[nodiscard]] virtual RankNotes backward_without_loss(bool sync, const RankNotes& own) {
    return sync ? own : RankNotes();
  }

 protected:
  LossGradient gradient_;
};

}  // namespace levin
