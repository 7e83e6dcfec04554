#include "levin/trainer/step/recorded_part.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_like.h>

#include <cstring>

namespace levin {

// Without a graph; a replayed step has none. For a number of the host an operator would take longer than this.
at::Tensor RecordedPart::copy_of_loss() const {
  if (!loss.defined()) return loss;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (!loss.is_cpu() || loss.numel() != 1 || loss.is_neg()) return loss.clone();
  at::Tensor copy = at::empty_like(loss);
  std::memcpy(copy.mutable_data_ptr(), loss.const_data_ptr(), loss.element_size());
  return copy;
}

StepResults RecordedPart::handed_out() const {
  StepResults results = {{"its loss", loss}};
  for (const auto& [name, value] : notes.outputs) results.emplace_back("the output \"" + name + "\"", value);
  return results;
}

StepResults RecordedPart::compared(const std::vector<at::Tensor>& gradients) const {
  StepResults results = {{"the loss", loss}, {"the sum of losses", unread_loss}};
  for (const auto& value : notes.logged) results.emplace_back("the logged value \"" + value.name + "\"", value.value);
  for (const auto& [name, value] : notes.outputs) results.emplace_back("the output \"" + name + "\"", value);
  results.emplace_back("whether losses and gradients are finite", notes.flags);
  results.emplace_back("what other ranks say", notes.received_flags);
  for (size_t i = 0; i < gradients.size(); ++i) {
    results.emplace_back("the gradient of parameter " + std::to_string(i), gradients[i]);
  }
  return results;
}

void RecordedPart::add_tensors(std::vector<at::Tensor>& to) const {
  to.insert(to.end(), {loss, unread_loss});
  notes.add_results(to);
}

}  // namespace levin
