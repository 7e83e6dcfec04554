// "levin tune": finds a batch size and a learning rate for a run file, and trains nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levin/callbacks/batch_size_finder.h"
#include "levin/callbacks/learning_rate_finder.h"
#include "levin/core/options/fields.h"

namespace levin {

/// Its own options; all other arguments describe the run.
struct TuneOptions {
  bool batch_size = false;
  bool lr = false;
  BatchSizeFinderOptions batch_size_finder = {};
  LearningRateFinderOptions lr_finder = {.update = false, .plot = "lr_find.svg"};

  template <class = void>
  static auto fields() {
    using O = TuneOptions;
    return levin::fields(field("batch_size", &O::batch_size, "find a batch size; without --lr this alone"),
                         field("lr", &O::lr, "find a learning rate; without --batch_size this alone"),
                         field("batch_size_finder", &O::batch_size_finder, "options of BatchSizeFinder"),
                         field("lr_finder", &O::lr_finder, "options of LearningRateFinder"));
  }
};

/// Runs the arguments after "levin tune"; returns the exit code. Throws the exceptions of a fit that cannot begin.
int run_tune(const std::vector<std::string>& arguments, int width);

}  // namespace levin
