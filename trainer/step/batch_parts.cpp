#include "levin/trainer/step/batch_parts.h"

#include <algorithm>

#include "levin/data/batch_rows.h"
#include "levin/strategies/device/scatter_gather.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/step_values.h"

namespace levin {

BatchParts::BatchParts(const Batch& batch, const std::vector<int64_t>& sizes, const std::vector<DeviceSlot>& slots)
    : batches(sizes.size()), shares(sizes.size()), losses(sizes.size()), samples(batch.size()) {
  for (size_t k = 0; k < sizes.size(); ++k) {
    shares[k].slot = slots[k];
    shares[k].samples = sizes[k];
  }
  if (batch.structure() == nullptr || batch.structure()->has_tensors_only()) {
    for (const at::Tensor& tensor : batch.tensors) {
      const auto cut = scatter(tensor, sizes, slots);
      for (size_t k = 0; k < sizes.size(); ++k) batches[k].tensors.push_back(cut[k]);
    }
    for (Batch& part : batches) part.set_structure(batch.structure());
  } else {
    cut_fields(batch, sizes, slots);
  }
}

// By samples: what is ragged is not cut along its first dimension.
void BatchParts::cut_fields(const Batch& batch, const std::vector<int64_t>& sizes,
                            const std::vector<DeviceSlot>& slots) {
  std::vector<std::vector<at::Tensor>> cuts(batch.count());
  int64_t from = 0;
  for (size_t k = 0; k < sizes.size(); ++k) {
    batches[k] = cut_rows(batch, from, sizes[k], [&](size_t place) {
      if (cuts[place].empty()) cuts[place] = scatter(batch.tensors[place], sizes, slots);
      return cuts[place][k];
    });
    const auto move = [&](at::Tensor& tensor) { tensor = move_to(tensor, slots[k]); };
    for (at::Tensor& tensor : batches[k].tensors) move(tensor);
    check_can_move(batches[k], slots[k].device);
    visit_values(batches[k], move);
    from += sizes[k];
  }
}

BatchParts::BatchParts(const Batch& batch, const DeviceSlot& home)
    : batches({batch}), shares(1), losses(1), samples(batch.size()) {
  shares[0].slot = home;
  shares[0].samples = samples;
}

double BatchParts::share_of(size_t k) const {
  return static_cast<double>(shares[k].samples) / static_cast<double>(std::max<int64_t>(1, samples));
}

at::Tensor mean_loss(StepCore& core, const BatchParts& parts) {
  return mean_of_shares(core, parts.losses, parts.shares, /*note=*/false);
}

at::Tensor finish_parts(StepCore& core, const BatchParts& parts) {
  {
    const HookScope scope(core.running, Hook::training_step);  // as for a whole batch
    log_shares(core, parts.shares);
    join_outputs(core, parts.shares);
  }
  const at::Tensor mean = mean_loss(core, parts);
  const int64_t window = core.window.size;
  return mean.defined() && window > 1 ? mean / window : mean;
}

}  // namespace levin
