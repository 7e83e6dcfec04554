#include "levin/trainer/step/recorded_batch.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "levin/core/tensor_text.h"
#include "levin/data/batch_rows.h"

namespace levin {

namespace {

bool same_kind(const at::Tensor& one, const at::Tensor& other) {
  return one.sizes() == other.sizes() && one.strides() == other.strides() && one.scalar_type() == other.scalar_type() &&
         one.device() == other.device();
}

// Keeps the tensor alive.
at::DataPtr memory_of(const at::Tensor& tensor) {
  auto* kept = new at::Tensor(tensor);
  return {kept->data_ptr(), kept, [](void* context) { delete static_cast<at::Tensor*>(context); }, at::kCPU};
}

}  // namespace

void RecordedBatch::make(const Batch& batch) {
  for (const auto& tensor : batch.tensors) batch_.tensors.push_back(tensor.clone());
  batch_.set_structure(batch.structure());
}

bool RecordedBatch::fits(const Batch& batch) const {
  return have_same_fields(batch, batch_) && std::equal(batch.tensors.begin(), batch.tensors.end(),
                                                       batch_.tensors.begin(), batch_.tensors.end(), same_kind);
}

void RecordedBatch::take(const Batch& batch) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < batch.count(); ++i) {
    at::Tensor& own = batch_.tensors[i];
    if (own.is_cpu()) {
      own.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(memory_of(batch.tensors[i]));
    } else {
      own.copy_(batch.tensors[i], /*non_blocking=*/true);
    }
  }
}

std::string why_not_recorded(const Batch& batch) {
  if (batch.structure() == nullptr) return "";
  const auto* field = batch.structure()->on_host();
  if (field == nullptr) return "";
  return "the field \"" + field->name + "\" of the batch holds " +
         (field->kind == FieldKind::texts ? "texts" : "a value of a type of its own") +
         ", which a step reads on the host, and a recorded step does so once and not at each batch";
}

std::string shapes_text(const Batch& batch) {
  std::string text;
  for (const auto& tensor : batch.tensors) text += (text.empty() ? "" : ", ") + shape_text(tensor.sizes());
  return text;
}

}  // namespace levin
