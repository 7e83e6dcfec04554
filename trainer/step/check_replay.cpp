#include "levin/trainer/step/check_replay.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "levin/core/tensors.h"

namespace levin {

namespace {

using Tensors = std::vector<at::Tensor>;

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

void put_back(const Tensors& tensors, const Tensors& copies) {
  for (size_t k = 0; k < tensors.size(); ++k) tensors[k].copy_(copies[k]);
}

bool all_same_bits(const Tensors& some, const Tensors& others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [](const at::Tensor& one, const at::Tensor& other) { return bitwise_equal(one, other); });
}

bool same_numbers(const State& one, const State& other) {
  for (const auto& [name, tensor] : one.tensors) {
    if (!bitwise_equal(tensor, other.tensors.at(name))) return false;
  }
  return true;
}

StepResults copies_of(const StepResults& results) {
  StepResults copies;
  for (const auto& [name, tensor] : results) {
    copies.emplace_back(name, tensor.defined() ? tensor.detach().clone() : tensor);
  }
  return copies;
}

std::string differing(const StepResults& replayed, const StepResults& run) {
  if (replayed.size() != run.size()) return "it produced a different number of results";
  for (size_t k = 0; k < run.size(); ++k) {
    if (replayed[k].first != run[k].first || !bitwise_equal(replayed[k].second, run[k].second)) {
      return run[k].first + " was another than in a replay";
    }
  }
  return "";
}

}  // namespace

std::string check_replay(Recording& recording, const ReplaySides& sides) {
  const bool grad_mode = at::GradMode::is_enabled();
  const at::NoGradGuard no_grad;
  const Tensors memory = recording.changed_memory();
  const Tensors before = copies_of(memory);
  const State random_before = random_state();
  const Tensors own_before = recording.own_random_state();
  const std::string called = recording.run_beside([&] {
    const at::AutoGradMode as_always(grad_mode);
    sides.step();
  });
  if (!called.empty()) return called;
  const Tensors after = copies_of(memory);
  const StepResults results = copies_of(sides.of_step());
  const State random_after = random_state();
  const Tensors own_after = recording.own_random_state();

  put_back(memory, before);
  restore_random_state(random_before);
  recording.set_own_random_state(own_before);
  recording.replay_beside();
  const std::string differs = differing(sides.of_replay(), results);
  const bool is_same_memory = all_same_bits(memory, after);
  const bool drew_the_same =
      same_numbers(random_after, random_state()) && all_same_bits(own_after, recording.own_random_state());
  put_back(memory, after);
  restore_random_state(random_after);
  recording.set_own_random_state(own_after);
  if (!differs.empty()) return differs;
  if (!is_same_memory) return "a weight, or other memory that it changes, was another than in a replay";
  return drew_the_same ? "" : "it drew other random numbers than a replay";
}

}  // namespace levin
