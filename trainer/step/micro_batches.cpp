#include "levin/trainer/step/micro_batches.h"

#include "levin/precision/grad_scaler.h"
#include "levin/recompute/recomputation.h"
#include "levin/strategies/device/scatter_gather.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/step/backward.h"
#include "levin/trainer/step/log_value.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/step/step_share.h"

namespace levin {

at::Tensor run_micro_batches(Run& run, const Batch& batch, int64_t batch_idx) {
  const DeviceSlot home{0, run.strategy->device()};
  const int64_t samples = batch.size();
  const auto sizes = share_sizes(samples, static_cast<size_t>(run.strategy->micro_batches()));
  const std::vector<DeviceSlot> slots(sizes.size(), home);
  std::vector<Batch> batches(sizes.size());
  for (const at::Tensor& tensor : batch.tensors) {
    const auto parts = scatter(tensor, sizes, slots);
    for (size_t k = 0; k < sizes.size(); ++k) batches[k].tensors.push_back(parts[k]);
  }
  std::vector<StepShare> shares(sizes.size());
  std::vector<at::Tensor> losses(sizes.size());
  GradScaler* scaler = run.precision->scaler();
  const auto window = static_cast<double>(run.progress.window_size);
  const HookScope scope(run, Hook::training_step);
  run.strategy->run_micro_batches(sizes.size(), [&](size_t k) {
    shares[k].slot = home;
    shares[k].samples = sizes[k];
    const ShareScope share(shares[k]);
    at::Tensor loss;
    {
      const ForwardScope forward(*run.precision, home.device.type());
      loss = run.module->training_step(batches[k], batch_idx);
    }
    check_loss(loss);
    const at::Tensor& weight = shares[k].loss_weight;
    loss = weigh(run, loss, weight, static_cast<int64_t>(sizes.size()));
    if (!loss.defined()) return loss;
    losses[k] = loss.detach();
    const double part_of_batch = static_cast<double>(sizes[k]) / static_cast<double>(std::max<int64_t>(1, samples));
    const at::Tensor part = counted_loss(run, loss, weight, part_of_batch);
    return scaler == nullptr ? part : scaler->scale(part);
  });
  if (run.recomputation) run.recomputation->check_called();
  log_shares(run, shares);
  const at::Tensor mean = mean_of_shares(run, losses, shares, /*note=*/false);
  return mean.defined() && window > 1 ? mean / window : mean;
}

}  // namespace levin
