#include "levin/trainer/step/closure_step.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <utility>
#include <vector>

#include "levin/trainer/step/pass.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/update.h"
#include "levin/trainer/step/window_verdict.h"

namespace levin {

namespace {

// Thrown to leave the optimizer's step; its changes are undone.
struct GivenUp {};

// The parameters at the start of a step, which evaluates the loss in other places too.
class StartOfStep {
 public:
  explicit StartOfStep(const Optimizer& optimizer) : params_(optimizer.parameters()) {
    for (const auto& param : params_) values_.push_back(param.detach().clone());
  }
  void restore() const {
    const at::NoGradGuard no_grad;
    if (!params_.empty()) at::_foreach_copy_(params_, values_);
  }

 private:
  std::vector<at::Tensor> params_, values_;
};

bool searches_line(const Optimizer& optimizer) {
  const ConfigNode options = optimizer.written_options();
  const ConfigNode* search = options.find("line_search_fn");
  return search != nullptr && !search->is_null();
}

// Returns whether the optimizer may continue with the loss and the gradients of an evaluation, the same on all ranks.
// Otherwise applies the policy. A line search tries points where the loss may be inf or nan, and returns from them.
bool keep_evaluation(StepCore& core, const Optimizer& optimizer, const at::Tensor& loss) {
  if (core.settings.nonfinite_loss == NonFiniteLoss::ignore) return true;
  const double value = loss.defined() ? loss.item().toDouble() : 0;
  if (!std::isfinite(value)) {
    if (searches_line(optimizer)) return true;
    core.verdict->act_on_loss(value);
    return false;
  }
  const at::Tensor found = core.verdict->nonfinite_gradients(optimizer);
  if (!found.defined() || found.item().toDouble() == 0) return true;
  core.verdict->act_on_gradient();
  return false;
}

}  // namespace

at::Tensor loss_of_ranks(RankCollectives& ranks, const at::Tensor& loss) {
  if (ranks.world_size() == 1) return loss;
  const at::Tensor own =
      at::tensor({loss.defined() ? loss.item().toDouble() : 0.0, loss.defined() ? 1.0 : 0.0}, at::kDouble);
  const at::Tensor sums = ranks.reduce(own, ReduceOp::sum);
  const auto* numbers = sums.const_data_ptr<double>();
  if (numbers[1] == 0) return {};
  return at::scalar_tensor(numbers[0] / static_cast<double>(ranks.mesh().data().size()), at::kDouble);
}

at::Tensor step_with_closure(StepCore& core, const Batch& batch, int64_t batch_idx, bool skipped) {
  if (skipped && !core.has_peers()) return {};
  Optimizer& optimizer = core.optimizers[0].optimizer();
  const StartOfStep start(optimizer);
  at::Tensor first_loss;
  bool is_first = true;
  const auto judge = [&](const at::Tensor& loss) {
    if (!is_first) return true;
    first_loss = loss.defined() ? loss.detach() : loss;
    if (!core.verdict->add_and_read(loss)) throw GivenUp();  // all ranks alike
    return true;
  };
  try {
    optimizer.step([&] {
      const PassLoss pass = run_pass(core, {.batch = skipped ? nullptr : &batch,
                                            .batch_idx = batch_idx,
                                            .opens_window = true,
                                            .closure = &optimizer,
                                            .judge = judge});
      const at::Tensor loss = loss_of_ranks(core.strategy.ranks(), pass.loss);
      if (!loss.defined() && core.has_peers()) throw GivenUp();  // no rank has anything to compute
      is_first = false;
      if (!keep_evaluation(core, optimizer, loss)) throw GivenUp();
      if (!before_update(core, optimizer)) throw GivenUp();
      return loss;
    });
  } catch (const GivenUp&) {
    start.restore();
    return first_loss;
  } catch (...) {
    start.restore();
    throw;
  }
  ++core.counters.global_step;
  return first_loss;
}

}  // namespace levin
