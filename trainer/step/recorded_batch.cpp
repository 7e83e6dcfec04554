#include "levin/trainer/step/recorded_batch.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "levin/core/tensors.h"
#include "levin/data/batch_rows.h"
#include "levin/libtorch/tensor_memory.h"
#include "levin/trainer/step/left_memory.h"

namespace levin {

namespace {

// Returns which property of the tensor is not in its memory, which is all that replays read.
std::string why_more_than_memory(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) return "is not strided, as sparse ones are";
  if (tensor.is_conj() || tensor.is_neg())
    return "is lazily conjugated or negated (resolve_conj and resolve_neg copy it)";
  if (tensor.requires_grad()) return "requires a gradient: what computes it would have to be part of training_step";
  return "";
}

bool same_kind(const at::Tensor& one, const at::Tensor& other) {
  return why_more_than_memory(one).empty() && one.sizes() == other.sizes() && one.strides() == other.strides() &&
         one.scalar_type() == other.scalar_type() && one.device() == other.device();
}

// Keeps the tensor alive.
at::DataPtr memory_of(const at::Tensor& tensor) {
  auto* kept = new at::Tensor(tensor);
  return {kept->data_ptr(), kept, [](void* context) { delete static_cast<at::Tensor*>(context); }, at::kCPU};
}

}  // namespace

// On a CPU take() changes the memory only, so the strides must be the batch's: clone() makes views of a larger tensor
// contiguous.
void RecordedBatch::make(const Batch& batch) {
  for (const auto& tensor : batch.tensors) {
    batch_.tensors.push_back(tensor.is_cpu() ? at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options())
                                             : tensor.clone());
  }
  batch_.set_structure(batch.structure());
  versions_.assign(batch_.count(), 0);
  changed_.assign(batch_.count(), false);
  take(batch);
}

bool RecordedBatch::fits(const Batch& batch) const {
  return have_same_fields(batch, batch_) && std::equal(batch.tensors.begin(), batch.tensors.end(),
                                                       batch_.tensors.begin(), batch_.tensors.end(), same_kind);
}

bool RecordedBatch::has(const c10::StorageImpl& storage) const {
  return std::any_of(batch_.tensors.begin(), batch_.tensors.end(),
                     [&](const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl() == &storage; });
}

void RecordedBatch::take(const Batch& batch) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < batch.count(); ++i) {
    at::Tensor& own = batch_.tensors[i];
    if (own.is_cpu()) {
      set_memory(*own.storage().unsafeGetStorageImpl(), memory_of(batch.tensors[i]));
    } else {
      own.copy_(batch.tensors[i], /*non_blocking=*/true);
      versions_[i] = own._version();
    }
  }
}

Batch RecordedBatch::lent() const {
  Batch lent = batch_;
  for (at::Tensor& tensor : lent.tensors) tensor = tensor.detach();
  return lent;
}

void RecordedBatch::note_changes() {
  for (size_t i = 0; i < batch_.count(); ++i) {
    const at::Tensor& own = batch_.tensors[i];
    if (!own.is_cpu() && own._version() != versions_[i]) changed_[i] = true;
  }
}

void RecordedBatch::give_back(const Batch& batch) const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < batch.count(); ++i) {
    if (changed_[i]) at::Tensor(batch.tensors[i]).copy_(batch_.tensors[i], /*non_blocking=*/true);
  }
}

BatchUses::BatchUses(const RecordedBatch& inputs) : inputs_(inputs) {
  for (const at::Tensor& tensor : inputs.batch().tensors) before_.push_back(tensor.storage().use_count());
}

bool BatchUses::have_grown(const std::vector<at::Tensor>& known, const Recording* made) const {
  for (size_t i = 0; i < before_.size(); ++i) {
    const at::Tensor& tensor = inputs_.batch().tensors[i];
    const size_t accounted =
        count_sharing(tensor.storage().unsafeGetStorageImpl(), known) + (made ? made->references_to(tensor) : 0);
    if (tensor.storage().use_count() > before_[i] + accounted) return true;
  }
  return false;
}

std::string kept_batch_text(std::string_view who) {
  return std::string(who) + " keeps a tensor of its batch, whose memory the next batch replaces; keep a clone of it";
}

std::string why_not_recorded(const Batch& batch) {
  for (size_t i = 0; i < batch.count(); ++i) {
    const std::string why = batch.tensors[i].defined() ? why_more_than_memory(batch.tensors[i]) : "";
    if (!why.empty()) return "tensor " + std::to_string(i) + " of the batch " + why;
  }
  if (batch.structure() == nullptr) return "";
  const auto* field = batch.structure()->on_host();
  if (field == nullptr) return "";
  return "the field \"" + field->name + "\" of the batch holds " +
         (field->kind == FieldKind::texts ? "strings" : "a value of a user-defined type") +
         ", which a step reads on the host, and a recorded step does so once and not at each batch";
}

std::string difference_text(const Batch& batch, const Batch& recorded) {
  const auto shapes = [](const Batch& of) {
    std::string text;
    for (const auto& tensor : of.tensors) text += (text.empty() ? "" : ", ") + shape_text(tensor.sizes());
    return text;
  };
  const std::string own = shapes(batch), others = shapes(recorded);
  if (own != others || batch.count() != recorded.count()) {
    return "has the shapes " + own + " and the recorded step " + others +
           " (drop_last leaves out a smaller last batch)";
  }
  for (size_t i = 0; i < batch.count(); ++i) {
    const at::Tensor& one = batch.tensors[i];
    const at::Tensor& other = recorded.tensors[i];
    const auto differs = [i](const std::string& what, const std::string& here, const std::string& there,
                             const std::string& advice = "") {
      return "has " + what + ' ' + here + " in tensor " + std::to_string(i) + " and the recorded step " + there +
             advice;
    };
    const std::string more = why_more_than_memory(one);
    if (!more.empty()) return "has a tensor, " + std::to_string(i) + ", that " + more;
    if (one.scalar_type() != other.scalar_type()) {
      return differs("the type", at::toString(one.scalar_type()), at::toString(other.scalar_type()));
    }
    if (one.device() != other.device()) return differs("the device", one.device().str(), other.device().str());
    if (one.strides() != other.strides()) {
      return differs("the strides", shape_text(one.strides()), shape_text(other.strides()),
                     " (contiguous() gives them the same)");
    }
  }
  return "has different fields from the recorded step";
}

}  // namespace levin
