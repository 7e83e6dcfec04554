// A trial of a sweep, as its database holds it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace levin {

enum class TrialState {
  waiting,  // to be started, or started again
  running,
  paused,     // has the result of a rung, and a checkpoint to go on from
  completed,  // has its final value
  failed
};

/// Keys of the run file and their values, as on the command line.
using Parameters = std::vector<std::pair<std::string, std::string>>;

struct RungResult {
  int64_t resource = 0;  // epochs or steps; 0: the whole run
  double value = 0;
  std::string checkpoint = "";   // holds the weights that the value was measured with; "": no file does
  int64_t checkpoint_step = -1;  // logging step of that file: a later state may replace it under the same name
};

struct Trial {
  int64_t id = 0;
  TrialState state = TrialState::waiting;
  Parameters parameters = {};
  int64_t bracket = 0;                 // of hyperband
  int64_t target = 0;                  // the resource that it runs to; 0: to its end
  bool finished = false;               // its run has ended by itself and can go no further
  std::vector<RungResult> rungs = {};  // in their order
  int64_t slot = 0;
  int64_t launches = 0;
  int64_t failures = 0;
  std::string error = "";
  int64_t pid = 0;                // of its process, 0: none was started
  std::string process = "";       // start time and boot of that process
  double started = 0, ended = 0;  // seconds since 1970, 0: not yet
  double launched = 0;            // when its process was started last
  double ran = 0;                 // seconds of all launches before

  /// The value at its highest rung.
  [[nodiscard]] std::optional<double> value() const {
    return rungs.empty() ? std::nullopt : std::optional(rungs.back().value);
  }
};

/// Whether any of them can be ranked.
[[nodiscard]] bool any_has_value(const std::vector<Trial>& trials);

/// "running"
[[nodiscard]] const char* word(TrialState state);

/// "optimizer.lr=0.01 model.hidden=64"
[[nodiscard]] std::string parameters_text(const Parameters& parameters);

/// Whether a value is better than another; nan is worse than all numbers.
[[nodiscard]] bool is_better(double value, double than, bool higher_is_better);

/// The best trial: of those that got furthest, the one with the best value, the first of equal ones; null pointer if no
/// trial has a value.
[[nodiscard]] const Trial* best_trial(const std::vector<Trial>& trials, bool higher_is_better);

}  // namespace levin
