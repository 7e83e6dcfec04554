// Batches with fields cut by samples, joined, and looked through. A list of tensors needs none of it.
#pragma once

#include <cstdint>
#include <functional>

#include "levin/data/batch.h"

namespace levin {

/// The part of the tensor at a place of Batch::tensors, which has a row for every sample or none.
using CutTensor = std::function<at::Tensor(size_t place)>;

/// The samples [from, from + count) of a batch: `cut` of its tensors and of those in lists, that part of what is ragged
/// and of texts, and of values what their traits say. Throws Error for a field with another number of samples, and for
/// a value that cannot be split.
[[nodiscard]] Batch cut_rows(const Batch& batch, int64_t from, int64_t count, const CutTensor& cut);

/// The same with views of the tensors; those without dimensions are the same in every part.
[[nodiscard]] Batch rows_of(const Batch& batch, int64_t from, int64_t count);

/// Adds the fields, and tensors without a name, of `part` to `batch`. Throws Error for a name that both have.
void append_fields(Batch& batch, const Batch& part);

/// Whether both have the same fields in the same places.
[[nodiscard]] bool have_same_fields(const Batch& one, const Batch& other);

/// Whether there are values of other types.
[[nodiscard]] inline bool has_values(const Batch& batch) {
  return batch.structure() != nullptr && !batch.structure()->values.empty();
}
/// Visits the tensors inside the values whose traits show them; what `visit` puts in their place stays in the batch.
void visit_values(Batch& batch, const TensorVisitor& visit);
/// Throws Error for a value that does not show its tensors, if `device` is not the CPU, where values are made.
void check_can_move(const Batch& batch, at::Device device);

}  // namespace levin
