// The loaders of a run.
#pragma once

#include <cstdint>
#include <vector>

#include "levin/data/loader.h"

namespace levin {

/// The loaders of a run and how many batches each gives.
struct LoaderSet {
  Loaders loaders = {};
  std::vector<int64_t> num_batches = {};
  bool loaded = false;
  bool has_state = false;  // training only: the loader of some rank has a state (Loader::state)
};

}  // namespace levin
