#include "levin/data/batch_text.h"

#include <c10/core/ScalarType.h>

#include <algorithm>

#include "levin/core/tensor_text.h"

namespace levin {

namespace {

// Of the tensor or list of tensors at this place; "" for others.
std::string name_at(const Batch& batch, size_t place) {
  if (batch.structure() == nullptr) return "";
  for (const auto& field : batch.structure()->fields) {
    const bool is_here = place >= field.first && place < field.first + std::max<size_t>(field.count, 1);
    if (field.kind == FieldKind::tensor && place == field.first) return field.name + " ";
    if (field.kind == FieldKind::list && is_here) return field.name + "[" + std::to_string(place - field.first) + "] ";
  }
  return "";
}

}  // namespace

std::string batch_text(const Batch& batch) {
  std::string text;
  for (size_t k = 0; k < batch.tensors.size(); ++k) {
    const at::Tensor& tensor = batch.tensors[k];
    text += (k == 0 ? "" : ", ") + name_at(batch, k);
    text += tensor.defined() ? shape_text(tensor.sizes()) + " " + c10::toString(tensor.scalar_type()) : "undefined";
  }
  return text.empty() ? "no tensor" : text;
}

}  // namespace levin
