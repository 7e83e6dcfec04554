// A batch cut into parts that are computed separately: in several passes, or by replicas.
#pragma once

#include <cstdint>
#include <vector>

#include "levin/data/batch.h"
#include "levin/strategies/device_placement.h"
#include "levin/trainer/step/step_share.h"

namespace levin {

struct StepCore;

/// The parts of a batch, with what each of them gave.
struct BatchParts {
  std::vector<Batch> batches = {};
  std::vector<StepShare> shares = {};   // how many samples each has, and what it logs
  std::vector<at::Tensor> losses = {};  // () detached; undefined: none
  int64_t samples = 0;

  /// Cuts the batch. `sizes`: the samples of each part, which goes to the slot with its index. Throws Error for a field
  /// that has a different number of samples or cannot be split.
  BatchParts(const Batch& batch, const std::vector<int64_t>& sizes, const std::vector<DeviceSlot>& slots);
  /// Makes a single part: the whole batch.
  BatchParts(const Batch& batch, const DeviceSlot& home);

  [[nodiscard]] size_t count() const { return shares.size(); }
  /// Returns the fraction of the batch's samples in part `k`.
  [[nodiscard]] double share_of(size_t k) const;

 private:
  void cut_fields(const Batch& batch, const std::vector<int64_t>& sizes, const std::vector<DeviceSlot>& slots);
};

/// Returns the parts' mean loss, for checks and display; undefined if no part had one.
[[nodiscard]] at::Tensor mean_loss(StepCore& core, const BatchParts& parts);
/// Logs the values of the parts as values of the batch. Returns the mean loss divided by the window.
[[nodiscard]] at::Tensor finish_parts(StepCore& core, const BatchParts& parts);

}  // namespace levin
