#pragma once

namespace levin {

/// Which part of an accumulation window a batch is; how many it has and has seen is in Progress.
struct Window {
  bool first = true;
  bool last = true;
  bool size_known = true;  // false: the window may be cut by the end of a loader of unknown length
};

}  // namespace levin
