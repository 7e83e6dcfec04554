#include "levin/trainer/step/module_replicas.h"

#include <utility>

#include "levin/strategies/device/parallel_backward.h"
#include "levin/strategies/device/scatter_gather.h"
#include "levin/trainer/step/batch_parts.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/step/step_share.h"
#include "levin/trainer/step/step_values.h"

namespace levin {

namespace {

// Concatenates the shares' predictions on the CPU; on the first device they might not fit.
at::Tensor outputs_on_cpu(std::vector<at::Tensor> outputs) {
  for (at::Tensor& output : outputs) output = output.defined() ? output.cpu() : output;
  return gather(outputs, DeviceSlot());
}

}  // namespace

ModuleReplicas::ModuleReplicas(LightningModule& module, std::vector<std::shared_ptr<LightningModule>> copies,
                               const std::vector<DeviceSlot>& slots)
    : copies_(std::move(copies)),
      parallel_(std::make_shared<ParallelApply>(slots)),
      replicas_(std::make_shared<Replicas>(
          module, std::vector<std::shared_ptr<torch::nn::Module>>(copies_.begin(), copies_.end()), slots)) {}

at::Tensor ModuleReplicas::run_step(StepCore& core, const Batch& batch, Result result, const Step& step) {
  const auto& slots = parallel_->slots();
  const auto sizes = share_sizes(batch.size(), slots.size());
  const size_t count = sizes.size();
  BatchParts parts(batch, sizes, slots);
  const bool cut = result == Result::loss && can_run_backward_in_parallel(*replicas_, *parallel_, count);
  if (cut) {
    replicas_->refresh_leaves(count);
  } else {
    replicas_->refresh(count);
  }
  std::vector<at::Tensor> results(count);
  (*parallel_)(count, [&](size_t k) {
    const ShareScope scope(parts.shares[k]);
    results[k] = step(k == 0 ? core.module : *copies_[k - 1], parts.batches[k]);
  });
  if (cut) results = with_parallel_backward(replicas_, parallel_, std::move(results));
  log_shares(core, parts.shares);
  join_outputs(core, parts.shares);
  if (result == Result::loss) return mean_of_shares(core, results, parts.shares, /*note=*/true);
  return core.strategy.placement().gathers_outputs() ? gather(results, slots[0]) : outputs_on_cpu(std::move(results));
}

}  // namespace levin
