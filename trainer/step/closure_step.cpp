#include "levin/trainer/step/closure_step.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <utility>

#include "levin/trainer/run/run.h"
#include "levin/trainer/step/nonfinite_loss.h"
#include "levin/trainer/step/pass.h"
#include "levin/trainer/step/update.h"

namespace levin {

namespace {

// Thrown to leave the optimizer's step before it has changed anything.
struct GivenUp {};

}  // namespace

at::Tensor loss_of_ranks(RankCollectives& ranks, const at::Tensor& loss) {
  if (ranks.world_size() == 1) return loss;
  const at::Tensor own =
      at::tensor({loss.defined() ? loss.item().toDouble() : 0.0, loss.defined() ? 1.0 : 0.0}, at::kDouble);
  const at::Tensor sums = ranks.reduce(own, ReduceOp::sum);
  const auto* numbers = sums.const_data_ptr<double>();
  if (numbers[1] == 0) return {};
  return at::scalar_tensor(numbers[0] / static_cast<double>(ranks.world_size()), at::kDouble);
}

at::Tensor step_with_closure(Run& run, const Batch& batch, int64_t batch_idx, bool skipped) {
  if (skipped && !run.has_peers()) return {};
  Optimizer& optimizer = run.fit.optimizers[0].optimizer();
  at::Tensor first_loss;
  bool is_first = true;
  const auto judge = [&](const at::Tensor& loss) {
    if (!is_first) return true;
    if (!keep_if_finite(run, loss)) throw GivenUp();  // all ranks alike
    first_loss = loss.defined() ? loss.detach() : loss;
    return true;
  };
  try {
    optimizer.step([&] {
      const PassLoss pass = run_pass(run, {.batch = skipped ? nullptr : &batch,
                                           .batch_idx = batch_idx,
                                           .opens_window = true,
                                           .closure = &optimizer,
                                           .judge = judge});
      const at::Tensor loss = loss_of_ranks(*run.strategy, pass.loss);
      if (!loss.defined() && run.has_peers()) throw GivenUp();  // no rank has anything to compute
      is_first = false;
      before_update(run, optimizer);
      return loss;
    });
  } catch (const GivenUp&) {
    return first_loss;
  }
  count_step(run.progress, run.fit.epoch);
  return first_loss;
}

}  // namespace levin
