// Cuts batches with fields by samples, joins them and visits their tensors.
#pragma once

#include <cstdint>
#include <functional>

#include "levin/data/batch.h"

namespace levin {

/// Returns part of the tensor at this index of Batch::tensors, which has a row for every sample, or no dimension.
using CutTensor = std::function<at::Tensor(size_t index)>;

/// Returns the samples [from, from + count) of a batch: applies `cut` to tensors and lists of tensors, takes that range
/// of ragged fields and strings, and slices values by their traits. Throws Error if a field has a different number of
/// samples or a value cannot be split.
[[nodiscard]] Batch cut_rows(const Batch& batch, int64_t from, int64_t count, const CutTensor& cut);

/// Same as above with views of the tensors; a tensor without dimensions is the same in every part.
[[nodiscard]] Batch rows_of(const Batch& batch, int64_t from, int64_t count);

/// Adds the fields and unnamed tensors of `part` to `batch`. Throws Error if both have the same name.
void append_fields(Batch& batch, const Batch& part);

/// Returns true if both have the same fields at the same indices.
[[nodiscard]] bool have_same_fields(const Batch& one, const Batch& other);

/// Returns true if the batch has values of user-defined types.
[[nodiscard]] inline bool has_values(const Batch& batch) {
  return batch.structure() != nullptr && !batch.structure()->values.empty();
}
/// Visits the tensors inside values whose traits expose them; the batch keeps the tensors that `visit` assigns.
void visit_values(Batch& batch, const TensorVisitor& visit);
/// Throws Error if a value does not expose its tensors and `device` is not the CPU, where values are created.
void check_can_move(const Batch& batch, at::Device device);

}  // namespace levin
