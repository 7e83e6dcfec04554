// The batch with which the memory planner measures a run. Internal.
#pragma once

#include <cstdint>
#include <optional>

#include "levin/data/batch.h"
#include "levin/trainer/run/run.h"

namespace levin {

struct BatchToMeasure {
  Batch batch = {};          // on the device
  int64_t batches_seen = 0;  // it is the largest of so many
};

/// The largest, in bytes, of the next batches, at most 32: texts are padded to the longest of their
/// batch, so the first batch may be much smaller than others. Unset if there is none. The training loaders are stopped
/// afterwards; the next pass begins where it would have begun.
[[nodiscard]] std::optional<BatchToMeasure> largest_of_next_batches(Run& run);

/// The first `samples` of the batch, copied; tensors without a row for each sample are left unchanged.
[[nodiscard]] Batch first_samples(const Batch& batch, int64_t samples);

/// Bytes of the batch's tensors.
[[nodiscard]] int64_t batch_bytes(const Batch& batch);

}  // namespace levin
