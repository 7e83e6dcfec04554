// The batch that recorded steps read: always the same tensors. On a device each batch is copied into their memory,
// whose addresses a recording has; on CPUs they take the batch's memory, which costs nothing. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "levin/core/device_work.h"
#include "levin/data/batch.h"

namespace levin {

/// The memory from which replays read their batch.
class RecordedBatch {
 public:
  /// Returns whether one of its tensors has this storage.
  [[nodiscard]] bool has(const c10::StorageImpl& storage) const;
  /// Returns true before the first batch.
  [[nodiscard]] bool empty() const { return batch_.empty(); }
  [[nodiscard]] const Batch& batch() const { return batch_; }

  /// Allocates memory with the layout of `batch`, and copies the batch to it. A batch without tensors stays empty().
  void make(const Batch& batch);
  /// Returns whether `batch` has the same fields, and the same number of tensors with the same shapes, strides, types
  /// and devices.
  [[nodiscard]] bool fits(const Batch& batch) const;
  /// Takes the values of a batch that fits, and keeps its memory alive until the next. Does not block the host.
  void take(const Batch& batch);
  /// Returns the batch for one run of the step: new tensors over the same memory.
  [[nodiscard]] Batch lent() const;

  /// Remembers which tensors a step changes in place; called on a device, after the step was captured.
  void note_changes();
  /// Copies these changes to `batch`, which was taken; called after a replay.
  void give_back(const Batch& batch) const;

 private:
  Batch batch_;
  std::vector<int64_t> versions_;  // when the batch was taken
  std::vector<bool> changed_;
};

/// The number of references to a recorded batch's memory before a step is given lent().
class BatchUses {
 public:
  explicit BatchUses(const RecordedBatch& inputs);
  /// Returns whether anything else refers to the memory after the step and its recording, and would see the next
  /// batch's values. `known`: tensors that the run itself holds from the step; `made`: the recording, or null.
  [[nodiscard]] bool have_grown(const std::vector<at::Tensor>& known, const Recording* made) const;

 private:
  const RecordedBatch& inputs_;
  std::vector<size_t> before_;
};

/// Returns the clause about have_grown(); `who`: a hook.
[[nodiscard]] std::string kept_batch_text(std::string_view who);

/// Returns why steps on this batch cannot be recorded, as a clause; "" if they can.
[[nodiscard]] std::string why_not_recorded(const Batch& batch);

/// Returns how `batch`, which does not fit, differs from the batch of the recorded step, as a clause: "has the shapes
/// …".
[[nodiscard]] std::string difference_text(const Batch& batch, const Batch& recorded);

}  // namespace levin
