// The settings that a search before the fit has found.
#pragma once

#include <cstdint>

namespace levin {

/// Values found before a fit that replace the user's (BatchSizeFinder, LearningRateFinder).
struct Tuning {
  int64_t batch_size = 0;             // of each rank; 0: the loader's own
  int64_t configured_batch_size = 0;  // the loader's own; 0: not known
  double lr_factor = 1;               // of every group's learning rate
};

}  // namespace levin
