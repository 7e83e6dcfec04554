#include "levin/trainer/step/pipelined_batch.h"

#include "levin/recompute/recomputation.h"
#include "levin/strategies/device/scatter_gather.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/step/batch_parts.h"
#include "levin/trainer/step/nonfinite_loss.h"
#include "levin/trainer/step/pass.h"

namespace levin {

// Forward and backward passes of the micro-batches alternate, so the gradients are zeroed before the first of them, and
// a loss that is not finite is noticed when its gradients already exist: the update is skipped nevertheless.
at::Tensor run_pipelined_batch(Run& run, const Batch& batch, int64_t batch_idx, const WindowPart& window) {
  if (window.first) zero_gradients(run);
  run.entry.time_split.enter(StepPart::forward);
  const auto sizes = share_sizes(batch.size(), static_cast<size_t>(run.strategy->micro_batches()));
  BatchParts parts(batch, sizes, std::vector<DeviceSlot>(sizes.size(), {0, run.strategy->device()}));
  {
    const HookScope scope(run.entry, Hook::training_step);
    run.strategy->run_micro_batches(parts.count(), [&](size_t k) {
      PassLoss loss;
      const Pass pass{.batch = &parts.batches[k],
                      .batch_idx = batch_idx,
                      .sync = window.last,
                      .parts = static_cast<int64_t>(parts.count()),
                      .share = parts.share_of(k),
                      .part = &parts.shares[k]};
      at::Tensor start = begin_piped_pass(run, pass, loss);
      if (loss.loss.defined()) parts.losses[k] = loss.loss.detach();
      return start;
    });
  }
  if (run.entry.recomputation) run.entry.recomputation->check_called();
  const at::Tensor mean = finish_parts(run, parts);
  run.entry.time_split.enter(StepPart::callbacks);
  call_plain(run, Hook::on_after_backward, &Callback::on_after_backward, &LightningModule::on_after_backward);
  if (mean.defined()) (void)keep_or_note(run, mean);
  return mean;
}

}  // namespace levin
