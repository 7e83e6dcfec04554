#include "levin/trainer/step/left_memory.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <chrono>
#include <set>
#include <thread>

#include "levin/core/options/units.h"
#include "levin/core/tensors.h"
#include "levin/libtorch/operator_values.h"

namespace levin {

namespace {

bool has_storage(const at::Tensor& tensor, const c10::StorageImpl* storage) {
  return tensor.defined() && tensor.has_storage() && tensor.storage().unsafeGetStorageImpl() == storage;
}

}  // namespace

size_t count_sharing(const c10::StorageImpl* storage, const std::vector<at::Tensor>& known) {
  std::set<const c10::TensorImpl*> sharing;
  for (const at::Tensor& tensor : known) {
    if (has_storage(tensor, storage)) sharing.insert(tensor.unsafeGetTensorImpl());
  }
  return sharing.size();
}

void StepMemory::run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack) {
  const auto note_last = [&](size_t count, bool is_made) {
    for (const c10::IValue& value : torch::jit::last(stack, count)) {
      each_tensor(value, [&](const at::Tensor& tensor) { note(tensor, is_made); });
    }
  };
  note_last(op.schema().arguments().size(), /*is_made=*/false);
  run_below(op, keys, stack);
  note_last(op.schema().returns().size(), /*is_made=*/true);
}

void StepMemory::note(const at::Tensor& tensor, bool is_made) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (!indices_.try_emplace(storage, seen_.size()).second) return;
  const auto owned = Storage::reclaim_copy(storage);
  seen_.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(owned), is_made});
  if (holds_ && !is_made && !tensor.is_cpu()) found_.push_back(owned);  // a number of the host is in the recording
}

bool StepMemory::has_made(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage()) return false;
  const auto found = indices_.find(tensor.storage().unsafeGetStorageImpl());
  return found != indices_.end() && seen_[found->second].is_made;
}

std::string StepMemory::problem(const StepResults& results, const std::vector<at::Tensor>& known,
                                std::string_view who) const {
  std::string found = problem_now(results, known, who);
  // The threads of shm and Gloo hold the tensors of a call for a moment after it has ended.
  for (int k = 0; !found.empty() && k < 100; ++k) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    found = problem_now(results, known, who);
  }
  return found;
}

std::string StepMemory::problem_now(const StepResults& results, const std::vector<at::Tensor>& known,
                                    std::string_view who) const {
  for (const Seen& seen : seen_) {
    const Storage alive = seen.is_made ? seen.known.lock() : Storage();
    if (!alive || alive->nbytes() == 0) continue;
    const size_t sharing = count_sharing(alive.get(), known);
    if (sharing == 0) {
      return std::string(who) + " keeps a tensor of " + bytes_text(alive->nbytes()) +
             " of its batch, which the next replay would overwrite; keep a clone of it in the hook after the batch, or "
             "log it";
    }
    if (alive.use_count() - 1 <= sharing) continue;
    for (const auto& [name, result] : results) {
      if (!has_storage(result, alive.get())) continue;
      return std::string(who) + " keeps " + name + ", which the next replay would overwrite; keep a clone of it";
    }
  }
  return "";
}

}  // namespace levin
