// What a run does with an optimizer that keeps an average of the weights itself (optim/averaging_optimizer.h): the
// average is evaluated, saved as the model and left in the module. Every rank calls these; ranks have equal averages.
#pragma once

#include "levin/core/state.h"

namespace levin {

struct Run;

/// A scope in which the module has the averages, for an evaluation inside fit.
class AverageScope {
 public:
  AverageScope(Run& run, bool inside_fit);
  ~AverageScope();
  AverageScope(const AverageScope&) = delete;
  AverageScope& operator=(const AverageScope&) = delete;

 private:
  Run* run_;  // null: nothing to switch
};

/// Leaves the averages in the module at the end of training.
void keep_averages(Run& run);

/// Replaces the checkpoint's model by the averages. Unless `weights_only`, "current_model" gets the trained weights.
void put_averages(Run& run, State& checkpoint, bool weights_only);

/// Loads the checkpoint's "current_model" into the module, to continue training.
void restore_trained_weights(Run& run, const State& checkpoint);

}  // namespace levin
