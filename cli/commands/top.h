// "levin top": a live run in a terminal, or one line a second without one.
#pragma once

#include <string>
#include <vector>

#include "levin/core/options/fields.h"

namespace levin {

/// Options of "levin top".
struct TopOptions {
  bool plain = false;
  double every = 1;
  template <class = void>
  static auto fields() {
    using O = TopOptions;
    return levin::fields(
        field("plain", &O::plain, "one line each time instead of a screen; so it is without a terminal"),
        field("every", &O::every, "seconds between two looks at the run").min(0.1).max(3600));
  }
};

/// Runs the arguments after "levin top"; returns the exit code: 0 when the run has ended, however it ended, or q was
/// pressed. Throws Error for a folder without a run.
int run_top(const std::vector<std::string>& arguments, int width);

}  // namespace levin
