// The batch that recorded steps read: always the same tensors. On a device each batch is copied into their memory,
// whose addresses a recording has; on CPUs they take the batch's memory, which costs nothing. Internal.
#pragma once

#include <string>

#include "levin/data/batch.h"

namespace levin {

class RecordedBatch {
 public:
  /// Before the first batch.
  [[nodiscard]] bool empty() const { return batch_.empty(); }
  [[nodiscard]] const Batch& batch() const { return batch_; }

  /// Makes memory like that of `batch`, and copies it there. A batch without tensors stays empty().
  void make(const Batch& batch);
  /// Whether `batch` has the same fields, and as many tensors, of the same shapes, strides, types and devices.
  [[nodiscard]] bool fits(const Batch& batch) const;
  /// Has the values of a batch that fits, and keeps its memory alive until the next. Does not block the host.
  void take(const Batch& batch);
  /// Whether something else refers to one of its tensors, whose memory the next batch replaces.
  [[nodiscard]] bool is_kept() const;

 private:
  Batch batch_;
};

/// Why steps on this batch cannot be recorded, a clause; "": they can.
[[nodiscard]] std::string why_not_recorded(const Batch& batch);

/// Returns in what `batch`, which does not fit, differs from the batch of the recorded step: a clause, "has the shapes
/// …".
[[nodiscard]] std::string difference_text(const Batch& batch, const Batch& recorded);

}  // namespace levin
