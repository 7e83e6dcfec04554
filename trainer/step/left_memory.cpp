#include "levin/trainer/step/left_memory.h"

#include <algorithm>
#include <set>

#include "levin/core/tensor_text.h"

namespace levin {

std::string problem_of_left_memory(const Recording& recording, const std::vector<at::Tensor>& known,
                                   std::string_view who) {
  for (const at::Tensor& left : recording.left_memory()) {
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const at::Tensor& tensor) {
      return tensor.defined() && tensor.has_storage() && tensor.storage().data() == left.storage().data();
    });
    if (is_known) continue;
    return std::string(who) + " keeps a tensor of " + bytes_text(left.nbytes()) +
           " of its batch, which the next replay would overwrite; keep a clone of it in the hook after the batch, or "
           "log it";
  }
  return "";
}

bool is_kept_elsewhere(const at::Tensor& result, const std::vector<at::Tensor>& known) {
  if (!result.defined() || !result.has_storage()) return false;
  std::set<const c10::TensorImpl*> sharing;
  for (const at::Tensor& tensor : known) {
    if (tensor.defined() && tensor.has_storage() && tensor.is_alias_of(result)) {
      sharing.insert(tensor.unsafeGetTensorImpl());
    }
  }
  return result.storage().use_count() > sharing.size();
}

}  // namespace levin
