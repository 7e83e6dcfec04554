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

class RecordedBatch {
 public:
  [[nodiscard]] bool has(const c10::StorageImpl& storage) const;
  /// Before the first batch.
  [[nodiscard]] bool empty() const { return batch_.empty(); }
  [[nodiscard]] const Batch& batch() const { return batch_; }

  /// Makes memory like that of `batch`, and copies it there. A batch without tensors stays empty().
  void make(const Batch& batch);
  /// Whether `batch` has the same fields, and as many tensors, of the same shapes, strides, types and devices.
  [[nodiscard]] bool fits(const Batch& batch) const;
  /// Has the values of a batch that fits, and keeps its memory alive until the next. Does not block the host.
  void take(const Batch& batch);
  /// The batch for one run of the step: tensors of its own over the same memory.
  [[nodiscard]] Batch lent() const;

  /// On a device, after a step was captured: remembers which tensors it changes in place.
  void note_changes();
  /// After a replay: `batch`, which was taken, gets those changes.
  void give_back(const Batch& batch) const;

 private:
  Batch batch_;
  std::vector<int64_t> versions_;  // when the batch was taken
  std::vector<bool> changed_;
};

/// How often the memory of a recorded batch is referred to, before a step is given lent().
class BatchUses {
 public:
  explicit BatchUses(const RecordedBatch& inputs);
  /// After the step and its recording: whether anything else refers to that memory now, so that the next batch would
  /// replace what it holds. `known`: tensors that the run has of the step; `made`: the recording, or null.
  [[nodiscard]] bool have_grown(const std::vector<at::Tensor>& known, const Recording* made) const;

 private:
  const RecordedBatch& inputs_;
  std::vector<size_t> before_;
};

/// The clause about have_grown(); `who`: a hook.
[[nodiscard]] std::string kept_batch_text(std::string_view who);

/// Why steps on this batch cannot be recorded, a clause; "": they can.
[[nodiscard]] std::string why_not_recorded(const Batch& batch);

/// Returns in what `batch`, which does not fit, differs from the batch of the recorded step: a clause, "has the shapes
/// …".
[[nodiscard]] std::string difference_text(const Batch& batch, const Batch& recorded);

}  // namespace levin
