// Decides what a sweep does next. A decision is a function of the options and of the trials so far, and of nothing
// else, so that an interrupted sweep decides like one that was not.
#pragma once

#include <vector>

#include "levin/cli/sweep/sweep_options.h"
#include "levin/cli/sweep/trial.h"

namespace levin {

struct SearchStep {
  enum class Kind {
    begin,      // a new trial
    continue_,  // a paused one, up to a higher rung
    wait,       // for a running one
    finished
  };
  Kind kind = Kind::wait;
  Parameters parameters = {};  // of a new trial
  int64_t trial = 0;           // that continues
  int64_t target = 0;          // resource that it runs to; 0: to its end
  int64_t bracket = 0;         // of a new trial
};

class Searcher {
 public:
  virtual ~Searcher() = default;

  /// The next step with a free slot; `trials` in the order of their ids.
  [[nodiscard]] virtual SearchStep next(const std::vector<Trial>& trials) const = 0;

  /// How many trials there will be in total.
  [[nodiscard]] virtual int64_t total() const = 0;
};

/// The parameters of a trial, which depend on method, seed and the trial's number alone.
[[nodiscard]] Parameters parameters_of(const SweepOptions& options, const Space& space, int64_t trial);

/// How many points a grid has; at most 2^62.
[[nodiscard]] int64_t grid_size(const Space& space);

}  // namespace levin
