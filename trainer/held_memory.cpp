#include "levin/trainer/held_memory.h"

#include <set>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/tensors.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

int64_t bytes_behind(const std::vector<at::Tensor>& tensors) {
  std::set<const c10::StorageImpl*> seen;
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    if (seen.insert(storage).second) bytes += static_cast<int64_t>(storage->nbytes());
  }
  return bytes;
}

}  // namespace

std::string HeldMemory::str() const {
  auto text = [](int64_t bytes) { return bytes_text(static_cast<uint64_t>(bytes)); };
  return "parameters " + text(parameters) + ", gradients " + text(gradients) + ", optimizer state " +
         text(optimizer_state);
}

HeldMemory held_memory(Trainer& trainer) {
  if (trainer.module() == nullptr) throw Error("held_memory: the trainer has no module. Call it in a fit.");
  std::vector<at::Tensor> weights = trainer.strategy().sharding().held();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : trainer.module()->parameters()) {
    weights.push_back(parameter);
    gradients.push_back(parameter.unsafeGetTensorImpl()->grad());
  }
  std::vector<at::Tensor> kept;
  for (auto& wrapped : trainer.optimizers()) {
    for (const auto& [name, tensor] : wrapped.optimizer().state_dict().tensors) {
      if (tensor.dim() > 0) kept.push_back(tensor);
    }
  }
  return {bytes_behind(weights), bytes_behind(gradients), bytes_behind(kept)};
}

}  // namespace levin
