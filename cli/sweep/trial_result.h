// What a trial's process says at its end, in a file that LEVIN_RESULT_FILE names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "levin/cli/sweep/sweep_options.h"
#include "levin/cli/sweep/sweep_store.h"

namespace levin {

/// The result of one launch of a trial.
struct TrialOutcome {
  enum class Kind {
    value,     // of the metric
    stopped,   // by a signal, at a checkpoint
    lost,      // no result was written
    failed,    // there is a result whose value is not finite
    unlogged,  // the run is complete and has not logged the metric
  };
  Kind kind = Kind::lost;
  double value = 0;
  std::string checkpoint = "";   // of the state that the value was measured in; "": no file holds it
  int64_t checkpoint_step = -1;  // its logging step
  bool finished = false;         // the run can go no further
  std::string error = "";        // failed, unlogged
};

/// FOLDER/result-3.json of the trial's third launch.
[[nodiscard]] std::string result_file(const SweepStore& store, const Trial& trial);

/// `ends`: a trial that was stopped is not continued, so that its value counts.
[[nodiscard]] TrialOutcome read_outcome(const SweepStore& store, const Trial& trial, bool ends);

/// When a checkpoint was saved; -1 if it cannot be read, or holds weights alone.
struct SavedPosition {
  int64_t step = -1;     // as loggers count
  int64_t batches = -1;  // training batches done
};
[[nodiscard]] SavedPosition position_of_checkpoint(const std::string& path);
/// The step alone.
[[nodiscard]] int64_t step_of_checkpoint(const std::string& path);

}  // namespace levin
