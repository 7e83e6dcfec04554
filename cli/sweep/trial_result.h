// What a trial's process says at its end, in a file that LEVIN_RESULT_FILE names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "levin/cli/sweep/sweep_options.h"
#include "levin/cli/sweep/sweep_store.h"

namespace levin {

struct TrialOutcome {
  enum class Kind {
    value,     // of the metric
    stopped,   // by a signal, at a checkpoint
    lost,      // there is no result
    failed,    // there is a result whose value is not finite
    unlogged,  // the run is complete and has not logged the metric
  };
  Kind kind = Kind::lost;
  double value = 0;
  bool finished = false;   // the run can go no further
  std::string error = "";  // failed, unlogged
};

/// FOLDER/result-3.json of the trial's third launch.
[[nodiscard]] std::string result_file(const SweepStore& store, const Trial& trial);

[[nodiscard]] TrialOutcome read_outcome(const SweepStore& store, const Trial& trial);

}  // namespace levin
