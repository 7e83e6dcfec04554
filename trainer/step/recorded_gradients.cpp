#include "levin/trainer/step/recorded_gradients.h"

#include <algorithm>

#include "levin/trainer/step/left_memory.h"

namespace levin {

std::vector<at::Tensor> RecordedGradients::now() const {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (const auto& parameter : parameters_) gradients.push_back(parameter.grad());
  return gradients;
}

void RecordedGradients::take() {
  recorded_.resize(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!recorded_[i].is_same(parameters_[i].grad())) recorded_[i] = parameters_[i].grad();
  }
}

void RecordedGradients::hold() {
  for (size_t i = 0; i < recorded_.size(); ++i) parameters_[i].mutable_grad() = recorded_[i];
}

bool RecordedGradients::are_in_place() const {
  for (size_t i = 0; i < recorded_.size(); ++i) {
    if (!recorded_[i].is_same(parameters_[i].grad())) return false;
  }
  return true;
}

void RecordedGradients::clear() {
  recorded_.clear();
  made_.clear();
  references_.clear();
}

void RecordedGradients::note_made(const StepMemory& memory) {
  made_.assign(parameters_.size(), false);
  for (size_t i = 0; i < parameters_.size(); ++i) made_[i] = memory.has_made(parameters_[i].grad());
}

void RecordedGradients::note_references(const std::function<size_t(const at::Tensor&)>& count) {
  references_.assign(recorded_.size(), 0);
  for (size_t i = 0; i < recorded_.size(); ++i) {
    if (recorded_[i].defined() && recorded_[i].has_storage()) references_[i] = count(recorded_[i]);
  }
}

std::vector<size_t> RecordedGradients::uses() const {
  std::vector<size_t> uses;
  for (const auto& gradient : recorded_) {
    uses.push_back(gradient.defined() && gradient.has_storage() ? gradient.storage().use_count() : 1);
  }
  return uses;
}

void RecordedGradients::note_references(const std::vector<size_t>& before) {
  references_.resize(recorded_.size());
  const std::vector<size_t> now = uses();
  for (size_t i = 0; i < now.size(); ++i) references_[i] += now[i] - std::min(now[i], before[i]);
}

std::string RecordedGradients::problem() const {
  for (size_t i = 0; i < references_.size(); ++i) {
    const at::Tensor& gradient = recorded_[i];
    if (!made_[i] || !gradient.defined() || !gradient.has_storage()) continue;
    const size_t own = gradient.is_same(parameters_[i].grad()) ? 2 : 1;
    if (gradient.use_count() > own || gradient.storage().use_count() > 1 + references_[i]) {
      return "the gradient of parameter " + std::to_string(i) +
             " is kept after its window, and the next replay would overwrite it; keep a clone of it";
    }
  }
  return "";
}

}  // namespace levin
