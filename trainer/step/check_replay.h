// Checks that a replayed step is bitwise identical to the step itself, from the same state.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/device_work.h"
#include "levin/trainer/random_state.h"

namespace levin {

/// The tensors that a step produces, each with its name for messages. An undefined tensor is a result too.
using StepResults = std::vector<std::pair<std::string, at::Tensor>>;

/// The step, and the results by which it is compared with its replay.
struct ReplaySides {
  std::function<void()> step;              // the step itself
  std::function<StepResults()> of_step;    // read after the step
  std::function<StepResults()> of_replay;  // read after the replay
};

/// Runs the step itself, and then replays `recording` from the same memory and random numbers, with what the step has
/// received from other ranks: only the step communicates. The step's effects stay. Returns what differed, as a clause
/// that continues a sentence; "" if nothing did.
[[nodiscard]] std::string check_replay(Recording& recording, const ReplaySides& sides);

}  // namespace levin
